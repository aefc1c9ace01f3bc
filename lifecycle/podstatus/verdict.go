// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/qos"
)

// Eviction is why and how a pod is ended although its source wants it. Source: the arguments of KillPodFunc in
// pkg/kubelet/eviction/types.go.
type Eviction struct {
	Reason  string `json:"reason"` // of the status, such as "Evicted" or "Preempting"; required
	Message string `json:"message,omitempty"`
	// Conditions are added to the status of the failed pod, such as DisruptionTarget. Their times are set.
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	// Grace is how long its containers may take to terminate, at least 2 s; zero: as long as the pod says. A pod that is
	// deleted never gets more time than its deletion gives it.
	Grace time.Duration `json:"grace,omitempty"`
	// Hold says that the pod does not fail but waits, in phase Pending with this reason, and is started again after a
	// back-off, once it is admitted anew. A pod whose restart policy is not Always fails all the same.
	Temporary bool `json:"hold,omitempty"`
}

// Holds reports whether the eviction holds a pod back instead of failing it.
func (e *Eviction) IsTemporary(pod *corev1.Pod) bool {
	return e != nil && e.Temporary && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// Rejection is why a pod is not to run on this node. It fails with this reason, and nothing is made for it.
type Rejection struct {
	Reason  string `json:"reason"` // such as "OutOfcpu"; empty: [ReasonUnexpectedAdmissionError]
	Message string `json:"message,omitempty"`
}

// ReasonUnexpectedAdmissionError is the reason of a rejection that names none. Source: pkg/kubelet/lifecycle/predicate.go.
const ReasonUnexpectedAdmissionError = "UnexpectedAdmissionError"

// Error returns "reason: message".
func (r *Rejection) Error() string { return r.StatusReason() + ": " + r.Message }

// StatusReason returns the reason of the pod's status and of the event.
func (r *Rejection) StatusReason() string { return cmp.Or(r.Reason, ReasonUnexpectedAdmissionError) }

// rejectedPrefix begins the message of a rejected pod. Source: rejectPod in pkg/kubelet/kubelet.go.
const rejectedPrefix = "Pod was rejected: "

// Rejected reports whether a status is that of a pod that was rejected.
func IsRejected(st *corev1.PodStatus) bool {
	return st.Phase == corev1.PodFailed && strings.HasPrefix(st.Message, rejectedPrefix)
}

// Status returns the status of the rejected pod, which has no conditions, addresses or containers. Source: rejectPod in
// pkg/kubelet/kubelet.go, SetPodStatus in pkg/kubelet/status/status_manager.go.
func (r *Rejection) Status(pod *corev1.Pod) corev1.PodStatus {
	return corev1.PodStatus{
		ObservedGeneration: pod.Generation, QOSClass: qos.StatusClass(pod),
		Phase: corev1.PodFailed, Reason: r.StatusReason(), Message: rejectedPrefix + r.Message,
	}
}

// evicted sets the phase of a pod that is evicted, whatever its containers say. One that is held back tells it once nothing
// of the pod runs; for one that fails see [DeferTerminalPhase].
func (in *Input) applyEviction(st *corev1.PodStatus, pod *corev1.Pod, observed cri.Pod) {
	e := in.Eviction
	switch {
	case !e.IsTemporary(pod):
		st.Phase, st.Reason, st.Message = corev1.PodFailed, e.Reason, e.Message
	case podview.Terminated(observed):
		st.Phase, st.Reason, st.Message = corev1.PodPending, e.Reason, e.Message
	}
}

// evictionConditions returns the conditions that an eviction adds to those of others, which it takes the place of: once
// nothing of the pod runs.
func evictionConditions(v *podview.View, st *corev1.PodStatus, others, previous []corev1.PodCondition, in *Input) []corev1.PodCondition {
	if in.Eviction == nil || st.Phase != corev1.PodFailed || st.Reason != in.Eviction.Reason || !podview.Terminated(v.Observed) {
		return others
	}
	for _, c := range in.Eviction.Conditions {
		c.ObservedGeneration = v.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(in.Now).Rfc3339Copy()
		if p := FindCondition(previous, c.Type); p != nil && p.Status == c.Status {
			c.LastTransitionTime = p.LastTransitionTime
		}
		if had := FindCondition(others, c.Type); had != nil {
			*had = c
		} else {
			others = append(others, c)
		}
	}
	return others
}
