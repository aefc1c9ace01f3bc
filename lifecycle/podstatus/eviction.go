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

// Eviction describes the termination of a pod that its source still lists. Source: the arguments of KillPodFunc in
// pkg/kubelet/eviction/types.go.
type Eviction struct {
	Reason  string `json:"reason"` // reason of the pod status, such as "Evicted" or "Preempting"; required
	Message string `json:"message,omitempty"`
	// Conditions are added to the status of the failed pod, for example DisruptionTarget. Their transition times are set by this
	// package.
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	// Grace is the grace period of the containers, at least 2 s; zero: that of the pod. The deletion grace period of the pod
	// still applies if it is shorter.
	Grace time.Duration `json:"grace,omitempty"`
	// Temporary is true if the pod does not fail: its containers are stopped, it has phase Pending with this reason, and after a
	// back-off and a new admission it is started again. It applies only to pods with restart policy Always; other pods fail.
	Temporary bool `json:"hold,omitempty"`
}

// IsTemporary reports whether the eviction e, which may be nil, leaves the pod Pending for a later restart instead of failing it.
func (e *Eviction) IsTemporary(pod *corev1.Pod) bool {
	return e != nil && e.Temporary && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// Rejection is the reason why a pod must not run on this node. The pod fails with this reason, and nothing is created for it.
type Rejection struct {
	Reason  string `json:"reason"` // such as "OutOfcpu"; empty: [ReasonUnexpectedAdmissionError]
	Message string `json:"message,omitempty"`
}

// ReasonUnexpectedAdmissionError is the reason of a rejection without a reason. Source: pkg/kubelet/lifecycle/predicate.go.
const ReasonUnexpectedAdmissionError = "UnexpectedAdmissionError"

// Error returns "reason: message".
func (r *Rejection) Error() string { return r.StatusReason() + ": " + r.Message }

// StatusReason returns the reason for the pod status and the event.
func (r *Rejection) StatusReason() string { return cmp.Or(r.Reason, ReasonUnexpectedAdmissionError) }

// rejectedPrefix starts the status message of a rejected pod. Source: rejectPod in pkg/kubelet/kubelet.go.
const rejectedPrefix = "Pod was rejected: "

// IsRejected reports whether status is that of a pod that failed by a [Rejection].
func IsRejected(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodFailed && strings.HasPrefix(status.Message, rejectedPrefix)
}

// Status returns the status of the rejected pod, without conditions, addresses and containers. Source: rejectPod in
// pkg/kubelet/kubelet.go, SetPodStatus in pkg/kubelet/status/status_manager.go.
func (r *Rejection) Status(pod *corev1.Pod) corev1.PodStatus {
	return corev1.PodStatus{
		ObservedGeneration: pod.Generation, QOSClass: qos.StatusClass(pod),
		Phase: corev1.PodFailed, Reason: r.StatusReason(), Message: rejectedPrefix + r.Message,
	}
}

// applyEviction sets the phase, reason and message in status of an evicted pod: Failed at once, or Pending once the containers of a
// temporarily evicted pod have exited. [DeferTerminalPhase] delays the publication of phase Failed.
func (in *Input) applyEviction(status *corev1.PodStatus, pod *corev1.Pod, observed cri.Pod) {
	e := in.Eviction
	switch {
	case !e.IsTemporary(pod):
		status.Phase, status.Reason, status.Message = corev1.PodFailed, e.Reason, e.Message
	case podview.IsTerminated(observed):
		status.Phase, status.Reason, status.Message = corev1.PodPending, e.Reason, e.Message
	}
}

// evictionConditions returns foreign, the conditions of controllers, with the conditions of the eviction once no container of the
// pod runs. A condition of the eviction replaces one of its type.
func evictionConditions(view *podview.View, status *corev1.PodStatus, foreign, previous []corev1.PodCondition, input *Input) []corev1.PodCondition {
	if input.Eviction == nil || status.Phase != corev1.PodFailed || status.Reason != input.Eviction.Reason || !podview.IsTerminated(view.Observed) {
		return foreign
	}
	for _, c := range input.Eviction.Conditions {
		c.ObservedGeneration = view.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(input.Now).Rfc3339Copy()
		if p := FindCondition(previous, c.Type); p != nil && p.Status == c.Status {
			c.LastTransitionTime = p.LastTransitionTime
		}
		if had := FindCondition(foreign, c.Type); had != nil {
			*had = c
		} else {
			foreign = append(foreign, c)
		}
	}
	return foreign
}
