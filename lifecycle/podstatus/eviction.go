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

// Eviction describes why and how a pod that its source still lists is terminated. Source: the arguments of KillPodFunc in
// pkg/kubelet/eviction/types.go.
type Eviction struct {
	Reason  string `json:"reason"` // reason of the pod status, such as "Evicted" or "Preempting"; required
	Message string `json:"message,omitempty"`
	// Conditions are added to the status of the failed pod, for example DisruptionTarget. This package sets their transition
	// times.
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	// Grace is the grace period for stopping the containers, at least 2 s. Zero: the grace period of the pod. If the deletion
	// grace period of the pod is shorter than Grace, it applies instead.
	Grace time.Duration `json:"grace,omitempty"`
	// Temporary is true if the pod must not fail but start again later. Its containers are stopped, and its phase becomes Pending
	// with Reason. After a back-off and a new admission it is started again. This applies only to pods with restart policy
	// Always; any other pod fails.
	Temporary bool `json:"hold,omitempty"`
}

// IsTemporary reports whether the evicted pod becomes Pending and starts again later. Otherwise it fails. Only a pod with
// restart policy Always can be evicted temporarily. If e is nil, the result is false.
func (e *Eviction) IsTemporary(pod *corev1.Pod) bool {
	return e != nil && e.Temporary && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// Rejection is the reason why a pod must not run on this node. The pod fails with this reason, and no sandbox, container or
// volume is created for it.
type Rejection struct {
	Reason  string `json:"reason"` // such as "OutOfcpu"; empty: [ReasonUnexpectedAdmissionError]
	Message string `json:"message,omitempty"`
	// Explanation has more than the kubelet's message, for example which NUMA node lacks CPUs. It is part of the event and the log, and not of the status.
	Explanation string `json:"-"`
}

// EventMessage returns the message and the explanation.
func (r *Rejection) EventMessage() string {
	if r.Explanation == "" {
		return r.Message
	}
	return r.Message + ". " + r.Explanation
}

// ReasonUnexpectedAdmissionError is the reason of a rejection whose field Reason is empty. Source:
// pkg/kubelet/lifecycle/predicate.go.
const ReasonUnexpectedAdmissionError = "UnexpectedAdmissionError"

// Error returns "reason: message".
func (r *Rejection) Error() string { return r.StatusReason() + ": " + r.Message }

// StatusReason returns the reason of the rejection for the pod status and the event. It is never empty.
func (r *Rejection) StatusReason() string { return cmp.Or(r.Reason, ReasonUnexpectedAdmissionError) }

// rejectedPrefix starts the status message of a rejected pod. Source: rejectPod in pkg/kubelet/kubelet.go.
const rejectedPrefix = "Pod was rejected: "

// IsRejected reports whether the status is that of a pod which has failed because of a [Rejection].
func IsRejected(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodFailed && strings.HasPrefix(status.Message, rejectedPrefix)
}

// Status returns the status of the rejected pod: phase Failed, with the reason and message of the rejection. It has no
// conditions, addresses or container statuses. Source: rejectPod in pkg/kubelet/kubelet.go, SetPodStatus in
// pkg/kubelet/status/status_manager.go.
func (r *Rejection) Status(pod *corev1.Pod) corev1.PodStatus {
	return corev1.PodStatus{
		ObservedGeneration: pod.Generation, QOSClass: qos.StatusClass(pod),
		Phase: corev1.PodFailed, Reason: r.StatusReason(), Message: rejectedPrefix + r.Message,
	}
}

// applyEviction sets the phase, reason and message of an evicted pod.
func (in *Input) applyEviction(status *corev1.PodStatus, pod *corev1.Pod, observed cri.Pod) {
	e := in.Eviction
	switch {
	case !e.IsTemporary(pod):
		// Containers may still run: DeferTerminalPhase delays the publication of the phase.
		status.Phase, status.Reason, status.Message = corev1.PodFailed, e.Reason, e.Message
	case podview.IsTerminated(observed):
		status.Phase, status.Reason, status.Message = corev1.PodPending, e.Reason, e.Message
	}
}

// evictionConditions adds the conditions of the eviction to foreign, the conditions of controllers, if the evicted pod has
// failed and no container runs.
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
