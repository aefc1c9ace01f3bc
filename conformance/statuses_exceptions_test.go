// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// statusExceptions convert the kubelet's statuses into ours, in this order.
var statusExceptions = []conformance.Exception[statusInput, containerStatuses]{{
	Name:   "restart of all",
	Reason: "during a restart of all containers their statuses are kept with a waiting reason; the kubelet removes the containers and reports exit code 137",
	When:   statusInput.mayRestartAll,
	Want:   func(in statusInput, _ containerStatuses) containerStatuses { return in.restartedAll() },
}, {
	Name:   "only ends are last states",
	Reason: "the last state is the last known termination; the kubelet uses the previous instance, which may have none",
	When: func(in statusInput) bool {
		return len(in.onlyEnds().Scene.Observed.Containers) < len(in.Scene.Observed.Containers)
	},
	Want: func(in statusInput, _ containerStatuses) containerStatuses {
		if in = in.onlyEnds(); in.mayRestartAll() {
			return in.restartedAll()
		}
		return kubeletStatuses(in)
	},
}, {
	Name:   "waiting reason",
	Reason: "a container that cannot be restarted has a waiting reason and is not ready, even an init container that has completed",
	When:   func(in statusInput) bool { return len(in.Waiting) > 0 },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if !in.isWaiting(a) {
				return
			}
			if a.isInferred() {
				a.now.State = in.waiting()
			}
			a.setWaiting(in.Waiting[a.spec.Name])
		})
	},
}, {
	Name:   "never started",
	Reason: "a container that was created and never started is no instance: it has no ID yet, does not count as a restart, and has a waiting reason",
	When:   func(in statusInput) bool { return in.Scene.hasCreated() },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.last == nil || a.last.State != cri.ContainerCreated {
				return
			}
			a.now.ContainerID, a.now.RestartCount = "", 0
			if a.before != nil {
				a.now.RestartCount = a.before.RestartCount
			}
			for _, instance := range a.instances {
				if instance.State != cri.ContainerCreated {
					a.now.RestartCount = max(a.now.RestartCount, int32(instance.Attempt))
				}
			}
			if w := a.now.State.Waiting; w.Reason == "" {
				a.now.State = in.waiting()
			}
		})
	},
}, {
	Name:   "lost track of",
	Reason: "a container in unknown state has an ID, counts as a restart when it is restarted, and implies that init containers have completed; without a termination it has a waiting reason",
	When:   func(in statusInput) bool { return len(in.Scene.inUnknownState()) > 0 },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.initial && !sidecar(a.spec) && a.last == nil && a.now.State.Waiting != nil && in.hasStartedRegular() && !in.isWaiting(a) {
				a.now.State, a.now.Ready = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}, true
			}
			if a.last == nil || a.last.State != cri.ContainerUnknown {
				return
			}
			a.now.RestartCount = int32(a.last.Attempt)
			if a.before != nil {
				a.now.RestartCount = max(a.now.RestartCount, a.before.RestartCount)
			}
			if w := a.now.State.Waiting; w != nil && w.Reason == "" {
				a.now.State = in.waiting()
			}
			a.editTerminations(func(end *corev1.ContainerStateTerminated) {
				if end.Reason == podstatus.ReasonStatusUnknown && end.ContainerID == "" {
					end.ContainerID = a.now.ContainerID
				}
			})
		})
	},
}, {
	Name:   "gone",
	Reason: "a container that ran and was removed has an unknown termination and is restarted, even after an earlier termination; in a terminating pod it has just terminated",
	When:   func(statusInput) bool { return true },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.last != nil || a.before == nil || a.before.State.Running == nil {
				return
			}
			end := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: podstatus.ReasonStatusUnknown, ExitCode: 137, ContainerID: a.before.ContainerID,
			}}
			if in.Scene.Pod.DeletionTimestamp == nil {
				a.now.LastTerminationState, a.now.RestartCount = end, a.before.RestartCount+1
				return
			}
			*a.now = *a.before
			a.now.State, a.now.Ready = end, false
			if !a.ephemeral {
				a.now.Started = new(false)
			}
		})
	},
}, {
	Name:   "another instance",
	Reason: "a new running instance counts as a restart, even if the termination of the previous instance was not observed",
	When:   func(statusInput) bool { return true },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.last != nil && a.last.State == cri.ContainerRunning && a.before != nil && a.before.ContainerID != "" &&
				a.before.ContainerID != a.now.ContainerID {
				a.now.RestartCount = max(int32(a.last.Attempt), a.before.RestartCount+1)
			}
		})
	},
}, {
	Name:   "never ran",
	Reason: "a container that could not be started has no start time; the kubelet reports 1970",
	When: func(in statusInput) bool {
		return slices.ContainsFunc(in.Scene.Observed.Containers, func(c cri.Container) bool {
			return c.State == cri.ContainerExited && c.StartedAt.IsZero()
		})
	},
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			a.editTerminations(func(end *corev1.ContainerStateTerminated) {
				if end.StartedAt.Unix() == 0 {
					end.StartedAt = metav1.Time{}
				}
			})
		})
	},
}, {
	Name:   "name of the image",
	Reason: "the image name is that in the pod spec if the runtime has stored it; the kubelet ignores the stored name",
	When:   func(statusInput) bool { return true },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.last != nil && a.last.Image.UserSpecifiedImage != "" {
				a.now.Image = a.last.Image.UserSpecifiedImage
			}
		})
	},
}, {
	Name:   "mounts",
	Reason: "mounts are reported from the runtime, even without a previous status; without a container they are those that the spec requires",
	When:   func(statusInput) bool { return true },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if a.before != nil {
				return
			}
			a.now.VolumeMounts = in.mounts(a.spec)
			for i, m := range a.spec.VolumeMounts {
				if a.last == nil && m.ReadOnly && m.RecursiveReadOnly != nil {
					a.now.VolumeMounts[i].RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
					if *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled {
						a.now.VolumeMounts[i].RecursiveReadOnly = m.RecursiveReadOnly
					}
				}
			}
		})
	},
}, {
	Name:   "created late",
	Reason: "a container that was created while another instance of it ran is ignored; the kubelet reports that the container is waiting",
	When:   func(in statusInput) bool { return len(in.Scene.createdLate()) > 0 },
	Want: func(in statusInput, _ containerStatuses) containerStatuses {
		in.Scene = in.Scene.withoutCreatedLate()
		return nodeagentStatuses(in)
	},
}, {
	Name:   "terminated for good",
	Reason: "a terminated container keeps its status in a terminating pod if its successor was only created or was removed; the kubelet reports the remaining instance",
	When:   func(statusInput) bool { return true },
	Want: func(in statusInput, now containerStatuses) containerStatuses {
		return in.editStatuses(now, func(a *statusEdit) {
			if in.isTerminatedForGood(a) {
				*a.now = *a.before
			}
		})
	},
}}

// isTerminatedForGood reports whether a container has terminated, and its newest instance is either a successor that is
// never started or its predecessor.
func (in statusInput) isTerminatedForGood(a *statusEdit) bool {
	if a.last == nil || a.before == nil || a.before.State.Terminated == nil {
		return false
	}
	if in.Scene.Pod.DeletionTimestamp != nil && a.last.State == cri.ContainerCreated {
		return true
	}
	previous := a.before.LastTerminationState.Terminated
	return previous != nil && a.before.ContainerID != "stand-in://"+a.last.ID && previous.ContainerID == "stand-in://"+a.last.ID
}

// statusEdit is the status of one container, with the inputs from which it is computed.
type statusEdit struct {
	spec               *corev1.Container
	before, now        *corev1.ContainerStatus
	instances          []cri.Container
	last               *cri.Container
	initial, ephemeral bool
}

// editStatuses calls edit for the statuses of all containers.
func (in statusInput) editStatuses(now containerStatuses, edit func(*statusEdit)) containerStatuses {
	for i, list := range in.lists(&now) {
		for j := range *list.now {
			a := statusEdit{now: &(*list.now)[j], initial: i == 0, ephemeral: i == 2}
			a.spec, a.last = in.Scene.spec(a.now.Name), in.Scene.last(a.now.Name)
			if k := slices.IndexFunc(*list.before, func(st corev1.ContainerStatus) bool { return st.Name == a.now.Name }); k >= 0 {
				a.before = &(*list.before)[k]
			}
			for _, c := range in.Scene.Observed.Containers {
				if c.Name == a.now.Name {
					a.instances = append(a.instances, c)
				}
			}
			edit(&a)
		}
	}
	return now
}

// isInferred reports whether the kubelet infers from later containers that an init container has completed.
func (a *statusEdit) isInferred() bool {
	return a.initial && a.last == nil && a.now.State.Terminated != nil && (a.before == nil || a.before.State.Terminated == nil)
}

// editTerminations calls edit for the terminations of a container.
func (a *statusEdit) editTerminations(edit func(*corev1.ContainerStateTerminated)) {
	for _, state := range []*corev1.ContainerState{&a.now.State, &a.now.LastTerminationState} {
		if state.Terminated != nil {
			state.Terminated = state.Terminated.DeepCopy() // both states may share it
			edit(state.Terminated)
		}
	}
}

// isWaiting reports whether a container has a waiting reason. A container that stays terminated by its restart policy has
// none. Exceptions are init containers, which run again in a new sandbox, and a restart of all containers.
func (in statusInput) isWaiting(a *statusEdit) bool {
	_, ok := in.Waiting[a.spec.Name]
	if !a.initial && a.last != nil && a.last.State == cri.ContainerExited && !podview.ShouldRestart(&in.Scene.Pod.Spec, a.spec, a.last.ExitCode) {
		view := podview.New(in.Scene.Pod, in.Scene.Observed)
		ok = ok && podview.GenerationOf(a.last) < view.Generation && !in.Scene.ephemeral(a.spec.Name)
	}
	return ok && in.Scene.Pod.DeletionTimestamp == nil && (a.last == nil || a.last.State != cri.ContainerRunning)
}

// setWaiting replaces the state of a container by a waiting reason.
func (a *statusEdit) setWaiting(w podstatus.Waiting) {
	if a.now.State.Terminated != nil {
		a.now.LastTerminationState = a.now.State
	}
	a.now.Ready = false
	a.now.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
}

// waiting returns the state of a container that has not run yet.
func (in statusInput) waiting() corev1.ContainerState {
	reason := podstatus.ReasonContainerCreating
	if len(in.Scene.Pod.Spec.InitContainers) > 0 {
		reason = podstatus.ReasonPodInitializing
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// hasStartedRegular reports whether a regular container was created since the last restart of all containers.
func (in statusInput) hasStartedRegular() bool {
	return slices.ContainsFunc(in.Scene.Pod.Spec.Containers, func(c corev1.Container) bool {
		last := in.Scene.last(c.Name)
		return last != nil && generationOf(*last) == in.Scene.startGeneration()
	})
}

// mayRestartAll reports whether a restart of all containers may have happened or may happen.
func (in statusInput) mayRestartAll() bool {
	return podutil.AllContainersCouldRestart(&in.Scene.Pod.Spec) || in.Scene.generation() > 0
}

// restartedAll returns the kubelet's statuses as if it had not removed the containers in a restart of all containers.
func (in statusInput) restartedAll() containerStatuses {
	return in.editStatuses(kubeletStatuses(in.inOneGeneration()), func(a *statusEdit) {
		if a.isInferred() && !in.hasStartedRegular() {
			a.now.State, a.now.Ready = in.waiting(), false
		}
		if in.Scene.Pod.DeletionTimestamp == nil && a.last != nil && a.last.State != cri.ContainerRunning &&
			!a.ephemeral && generationOf(*a.last) < in.Scene.startGeneration() {
			a.setWaiting(podstatus.Waiting{Reason: podstatus.ReasonRestartingAllContainers})
		}
	})
}

// startGeneration returns the restart-all generation of newly started containers.
func (s scene) startGeneration() int {
	if s.restartsAll() {
		return s.generation() + 1
	}
	return s.generation()
}

// onlyEnds returns the scene without instances that have not terminated and are followed by newer ones.
func (in statusInput) onlyEnds() statusInput {
	in.Scene.Observed.Containers = slices.DeleteFunc(slices.Clone(in.Scene.Observed.Containers), func(c cri.Container) bool {
		return c.State != cri.ContainerExited && c.ID != in.Scene.last(c.Name).ID
	})
	return in
}

// inOneGeneration returns the scene as if no container had ever caused a restart of all containers.
func (in statusInput) inOneGeneration() statusInput {
	in.Scene.Pod, in.Previous = in.Scene.Pod.DeepCopy(), in.Previous.DeepCopy()
	in.Previous.Conditions = nil
	for _, c := range in.Scene.specs() {
		c.RestartPolicyRules = slices.DeleteFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	in.Scene.Observed.Containers = slices.Clone(in.Scene.Observed.Containers)
	for i := range in.Scene.Observed.Containers {
		c := &in.Scene.Observed.Containers[i]
		c.Annotations = maps.Clone(c.Annotations)
		delete(c.Annotations, podview.AnnotationGeneration)
	}
	return in
}
