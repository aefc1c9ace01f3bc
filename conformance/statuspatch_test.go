// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubestatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
)

func TestStatusAccept(t *testing.T) { run(t, statusAccepts) }
func FuzzStatusAccept(f *testing.F) { fuzz(f, statusAccepts) }
func TestStatusMerge(t *testing.T)  { run(t, statusMerges) }
func FuzzStatusMerge(f *testing.F)  { fuzz(f, statusMerges) }
func TestStatusPatch(t *testing.T)  { statusPatches.Run(t, flags.AtMost(10_000)) }
func FuzzStatusPatch(f *testing.F)  { fuzz(f, statusPatches) }

// acceptedStatus is the status that the status manager stores.
type acceptedStatus struct {
	Status  corev1.PodStatus
	Changed bool // differs from the previous status
	Dropped bool
}

// statusAccepts compares the stored status, the rejection of invalid state transitions, and the detection of changes.
var statusAccepts = conformance.Comparison[conformance.Said, acceptedStatus]{
	Make: conformance.NewSaid,
	Kubelet: func(in conformance.Said) acceptedStatus {
		status, changed, ok := kubestatus.ConformanceAccept(in.Pod, in.Before, in.Status)
		return acceptedStatus{withoutNow(status), changed, !ok}
	},
	Ours: func(in conformance.Said) acceptedStatus {
		status, err := statuspatch.Accept(in.Pod, &in.Before, &in.Status, time.Now())
		if err != nil {
			return acceptedStatus{Dropped: true}
		}
		return acceptedStatus{withoutNow(status), !statuspatch.Equal(&in.Before, &status), false}
	},
	Same: func(kubelet, ours acceptedStatus) bool {
		return kubelet.Changed == ours.Changed && kubelet.Dropped == ours.Dropped && equality.Semantic.DeepEqual(kubelet.Status, ours.Status)
	},
	Exceptions: []conformance.Exception[conformance.Said, acceptedStatus]{
		{
			Name:   "time that the agent knows",
			Reason: "a changed condition has the transition time that the agent has set, not the time of the request",
			When:   func(in conformance.Said) bool { return len(in.Status.Conditions) > 0 },
			Want: func(in conformance.Said, kubelet acceptedStatus) acceptedStatus {
				for i := range kubelet.Status.Conditions {
					if c := &kubelet.Status.Conditions[i]; c.LastTransitionTime.IsZero() && !statusKept(&in.Before, c) {
						said := timeSaid(in.Status.Conditions, c.Type)
						c.LastTransitionTime = said.Rfc3339Copy()
					}
				}
				return kubelet
			},
		},
		{
			Name:   "policy of the container",
			Reason: "API servers evaluate the restart policy of a container first, and reject the status that the kubelet would send",
			When:   func(in conformance.Said) bool { return leavesTerminated(in.Pod, &in.Before, &in.Status) },
			Want:   func(conformance.Said, acceptedStatus) acceptedStatus { return acceptedStatus{Dropped: true} },
		},
		{
			Name:   "message cut within a character",
			Reason: "a truncated termination message ends with a complete character",
			When:   func(in conformance.Said) bool { return saidMessage(&in.Status, strings.Repeat("aü", 4500)) },
			Want: func(in conformance.Said, kubelet acceptedStatus) acceptedStatus {
				eachMessage(&kubelet.Status, func(message string) string {
					for r, n := utf8.DecodeLastRuneInString(message); r == utf8.RuneError && n == 1; r, n = utf8.DecodeLastRuneInString(message) {
						message = message[:len(message)-n]
					}
					return message
				})
				kubelet.Changed = !sameMessages(&in.Before, &kubelet.Status) || kubelet.Changed
				return kubelet
			},
		},
		{
			Name:   "message that is not UTF-8",
			Reason: "a termination message is sent in the form in which the API server stores it",
			When:   func(in conformance.Said) bool { return saidMessage(&in.Status, "not\xffUTF-8") },
			Want: func(in conformance.Said, kubelet acceptedStatus) acceptedStatus {
				eachMessage(&kubelet.Status, func(message string) string { return strings.ToValidUTF8(message, "�") })
				kubelet.Changed = !sameMessages(&in.Before, &kubelet.Status) || kubelet.Changed
				return kubelet
			},
		},
	},
}

// leavesTerminated reports whether an API server rejects a status because a container has left a terminated state. Source:
// ValidateContainerStateTransition in pkg/apis/core/validation.
func leavesTerminated(pod *corev1.Pod, before, status *corev1.PodStatus) bool {
	refused := func(before, status []corev1.ContainerStatus, specs []corev1.Container) bool {
		return slices.ContainsFunc(before, func(was corev1.ContainerStatus) bool {
			left := slices.ContainsFunc(status, func(is corev1.ContainerStatus) bool {
				return is.Name == was.Name && was.State.Terminated != nil && is.State.Terminated == nil
			})
			return left && !slices.ContainsFunc(specs, func(c corev1.Container) bool {
				return c.Name == was.Name && podutil.ContainerShouldRestart(c, pod.Spec, was.State.Terminated.ExitCode)
			})
		})
	}
	if refused(before.EphemeralContainerStatuses, status.EphemeralContainerStatuses, nil) {
		return true
	}
	return !podutil.AllContainersCouldRestart(&pod.Spec) &&
		(refused(before.ContainerStatuses, status.ContainerStatuses, pod.Spec.Containers) ||
			refused(before.InitContainerStatuses, status.InitContainerStatuses, pod.Spec.InitContainers))
}

// statusMerges compares the statuses to send to the API server.
var statusMerges = conformance.Comparison[conformance.Said, corev1.PodStatus]{
	Make: conformance.NewSaid,
	Kubelet: func(in conformance.Said) corev1.PodStatus {
		return withoutNow(kubestatus.ConformanceMerge(in.Pod, in.Before, in.Status, in.MayRun))
	},
	Ours: func(in conformance.Said) corev1.PodStatus {
		return withoutNow(statuspatch.Merge(in.Pod, &in.Before, &in.Status, in.MayRun, time.Now()))
	},
	Same: func(kubelet, ours corev1.PodStatus) bool { return equality.Semantic.DeepEqual(kubelet, ours) },
	Exceptions: []conformance.Exception[conformance.Said, corev1.PodStatus]{{
		Name:   "time of a disruption that the agent knows",
		Reason: "the condition DisruptionTarget has the transition time that the agent has set, not the time of the request",
		When: func(in conformance.Said) bool {
			return timeSaid(in.Status.Conditions, corev1.DisruptionTarget) != (metav1.Time{})
		},
		Want: func(in conformance.Said, kubelet corev1.PodStatus) corev1.PodStatus {
			for i := range kubelet.Conditions {
				if c := &kubelet.Conditions[i]; c.Type == corev1.DisruptionTarget && c.LastTransitionTime.IsZero() && !statusKept(&in.Before, c) {
					c.LastTransitionTime = timeSaid(in.Status.Conditions, c.Type)
				}
			}
			return kubelet
		},
	}},
}

// statusPatches compares the status in the API server after the kubelet's patch of its merged status, and after ours.
var statusPatches = conformance.Comparison[conformance.Said, corev1.PodStatus]{
	Make: conformance.NewSaid,
	Kubelet: func(in conformance.Said) corev1.PodStatus {
		merged := kubestatus.ConformanceMerge(in.Pod, in.Before, in.Status, in.MayRun)
		patch, err := strategicpatch.CreateTwoWayMergePatch(
			jsonOf(corev1.Pod{Status: in.Before}), jsonOf(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: in.Pod.UID}, Status: merged}), corev1.Pod{})
		if err != nil {
			panic(err)
		}
		return patchedStatus(in.Pod, patch)
	},
	Ours: func(in conformance.Said) corev1.PodStatus {
		merged := kubestatus.ConformanceMerge(in.Pod, in.Before, *in.Status.DeepCopy(), in.MayRun)
		patch, err := statuspatch.Patch(in.Pod.UID, &in.Before, &merged)
		switch {
		case err != nil:
			panic(err)
		case patch == nil:
			patch = []byte("{}")
		}
		return patchedStatus(in.Pod, patch)
	},
	Same: func(kubelet, ours corev1.PodStatus) bool { return equality.Semantic.DeepEqual(kubelet, ours) },
}

// patchedStatus returns the status after an API server has applied the patch.
func patchedStatus(pod *corev1.Pod, patch []byte) (out corev1.PodStatus) {
	patched, err := strategicpatch.StrategicMergePatch(jsonOf(pod), patch, corev1.Pod{})
	if err != nil {
		panic(err)
	}
	var after corev1.Pod
	if err := json.Unmarshal(patched, &after); err != nil {
		panic(err)
	}
	if after.UID != pod.UID {
		panic("the patch changes the UID")
	}
	return withoutNow(after.Status)
}

func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// withoutNow returns a status without current times. The times in inputs are in 2020.
func withoutNow(status corev1.PodStatus) corev1.PodStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.LastTransitionTime.Year() > 2020 {
			c.LastTransitionTime = metav1.Time{}
		}
	}
	if status.StartTime != nil && status.StartTime.Year() > 2020 {
		status.StartTime = nil
	}
	return status
}

// statusKept reports whether the status of a condition is unchanged.
func statusKept(before *corev1.PodStatus, c *corev1.PodCondition) bool {
	return slices.ContainsFunc(before.Conditions, func(b corev1.PodCondition) bool { return b.Type == c.Type && b.Status == c.Status })
}

// timeSaid returns the transition time of a condition, or zero if it is missing.
func timeSaid(conditions []corev1.PodCondition, t corev1.PodConditionType) metav1.Time {
	for i := range conditions {
		if conditions[i].Type == t {
			return conditions[i].LastTransitionTime
		}
	}
	return metav1.Time{}
}

// eachMessage changes all termination messages, in a copy of the statuses.
func eachMessage(s *corev1.PodStatus, change func(string) string) {
	*s = *s.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				if state.Terminated != nil {
					state.Terminated.Message = change(state.Terminated.Message)
				}
			}
		}
	}
}

// saidMessage reports whether a termination message equals message.
func saidMessage(s *corev1.PodStatus, message string) (found bool) {
	eachMessage(s.DeepCopy(), func(m string) string { found = found || m == message; return m })
	return found
}

// sameMessages reports whether the container statuses are equal.
func sameMessages(a, b *corev1.PodStatus) bool {
	return equality.Semantic.DeepEqual(a.ContainerStatuses, b.ContainerStatuses) &&
		equality.Semantic.DeepEqual(a.InitContainerStatuses, b.InitContainerStatuses) &&
		equality.Semantic.DeepEqual(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses)
}
