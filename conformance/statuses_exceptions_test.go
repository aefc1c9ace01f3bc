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

// statusExceptions are in the order in which they turn what the kubelet says into what we say.
var statusExceptions = []conformance.Exception[described, containerStatuses]{{
	Name:   "restart of all",
	Reason: "the containers of a pod that starts over stay to be seen, and wait for their turn, where the kubelet removes them and makes up an end of 137",
	When:   described.mayRestartAll,
	Want:   func(in described, _ containerStatuses) containerStatuses { return in.restartedAll() },
}, {
	Name:   "only ends are last states",
	Reason: "the last state is the last end that is known, where the kubelet takes the instance before, which may have none",
	When: func(in described) bool {
		return len(in.onlyEnds().Scene.Observed.Containers) < len(in.Scene.Observed.Containers)
	},
	Want: func(in described, _ containerStatuses) containerStatuses {
		if in = in.onlyEnds(); in.mayRestartAll() {
			return in.restartedAll()
		}
		return kubeletStatuses(in)
	},
}, {
	Name:   "waiting reason",
	Reason: "a container that is to be started again and cannot be says why, also an init container that had ended well, which is then not ready",
	When:   func(in described) bool { return len(in.Waiting) > 0 },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			if !in.isWaiting(a) {
				return
			}
			if a.inferred() {
				a.now.State = in.waiting()
			}
			a.setWaiting(in.Waiting[a.spec.Name])
		})
	},
}, {
	Name:   "never started",
	Reason: "a container that was created and never started is no instance of its own: it has no ID yet and does not count, and why it waits is said",
	When:   func(in described) bool { return in.Scene.hasCreated() },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
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
	Reason: "what the runtime has lost track of has an ID, counts once it is started again, and came after its init containers; without an end it waits with a reason",
	When:   func(in described) bool { return len(in.Scene.lost()) > 0 },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			if a.initial && !sidecar(a.spec) && a.last == nil && a.now.State.Waiting != nil && in.begun() && !in.isWaiting(a) {
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
			a.ends(func(end *corev1.ContainerStateTerminated) {
				if end.Reason == podstatus.ReasonStatusUnknown && end.ContainerID == "" {
					end.ContainerID = a.now.ContainerID
				}
			})
		})
	},
}, {
	Name:   "gone",
	Reason: "a container that ran and is gone has ended as nobody knows, and is started again, also if it had ended before; in a pod that ends it has just ended",
	When:   func(described) bool { return true },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
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
	Reason: "a container that runs in the place of another was started once more, also if the end of that was not seen",
	When:   func(described) bool { return true },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			if a.last != nil && a.last.State == cri.ContainerRunning && a.before != nil && a.before.ContainerID != "" &&
				a.before.ContainerID != a.now.ContainerID {
				a.now.RestartCount = max(int32(a.last.Attempt), a.before.RestartCount+1)
			}
		})
	},
}, {
	Name:   "never ran",
	Reason: "a container that could not be started has no time at which it was, where the kubelet says 1970",
	When: func(in described) bool {
		return slices.ContainsFunc(in.Scene.Observed.Containers, func(c cri.Container) bool {
			return c.State == cri.ContainerExited && c.StartedAt.IsZero()
		})
	},
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			a.ends(func(end *corev1.ContainerStateTerminated) {
				if end.StartedAt.Unix() == 0 {
					end.StartedAt = metav1.Time{}
				}
			})
		})
	},
}, {
	Name:   "name of the image",
	Reason: "an image is called what the pod calls it where the runtime has kept that, which the kubelet does not look at",
	When:   func(described) bool { return true },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			if a.last != nil && a.last.Image.UserSpecifiedImage != "" {
				a.now.Image = a.last.Image.UserSpecifiedImage
			}
		})
	},
}, {
	Name:   "mounts",
	Reason: "the mounts of a container are told from the runtime, also if nothing was said of it before; without a container they are what the spec insists on",
	When:   func(described) bool { return true },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
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
	Reason: "a container that was created while another instance of it ran does not count, where the kubelet says that the container waits",
	When:   func(in described) bool { return len(in.Scene.late()) > 0 },
	Want: func(in described, _ containerStatuses) containerStatuses {
		in.Scene = in.Scene.withoutLate()
		return nodeagentStatuses(in)
	},
}, {
	Name:   "terminated for good",
	Reason: "a terminated container keeps its status where its successor in a pod that ends was only created, or was removed before it; the kubelet shows the instance that is there",
	When:   func(described) bool { return true },
	Want: func(in described, now containerStatuses) containerStatuses {
		return in.each(now, func(a *about) {
			if in.isTerminatedForGood(a) {
				*a.now = *a.before
			}
		})
	},
}}

// isTerminatedForGood reports whether a container had terminated, and the newest instance is a successor that is never started or its
// predecessor.
func (in described) isTerminatedForGood(a *about) bool {
	if a.last == nil || a.before == nil || a.before.State.Terminated == nil {
		return false
	}
	if in.Scene.Pod.DeletionTimestamp != nil && a.last.State == cri.ContainerCreated {
		return true
	}
	previous := a.before.LastTerminationState.Terminated
	return previous != nil && a.before.ContainerID != "stand-in://"+a.last.ID && previous.ContainerID == "stand-in://"+a.last.ID
}

// about is the status of one container, with what it is made from.
type about struct {
	spec               *corev1.Container
	before, now        *corev1.ContainerStatus
	instances          []cri.Container
	last               *cri.Container
	initial, ephemeral bool
}

// each edits the statuses of all containers.
func (in described) each(now containerStatuses, edit func(*about)) containerStatuses {
	for i, list := range in.lists(&now) {
		for j := range *list.now {
			a := about{now: &(*list.now)[j], initial: i == 0, ephemeral: i == 2}
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

// inferred reports whether an init container is said to have ended well because others have run since.
func (a *about) inferred() bool {
	return a.initial && a.last == nil && a.now.State.Terminated != nil && (a.before == nil || a.before.State.Terminated == nil)
}

// ends edits the ends of a container.
func (a *about) ends(edit func(*corev1.ContainerStateTerminated)) {
	for _, state := range []*corev1.ContainerState{&a.now.State, &a.now.LastTerminationState} {
		if state.Terminated != nil {
			state.Terminated = state.Terminated.DeepCopy() // which may be in both
			edit(state.Terminated)
		}
	}
}

// isWaiting reports whether a container has a waiting reason. One that its restart policy leaves terminated has none, unless it is an init
// container, which runs again in a new sandbox, or all containers are restarted.
func (in described) isWaiting(a *about) bool {
	_, ok := in.Waiting[a.spec.Name]
	if !a.initial && a.last != nil && a.last.State == cri.ContainerExited && !podview.ShouldRestart(&in.Scene.Pod.Spec, a.spec, a.last.ExitCode) {
		view := podview.New(in.Scene.Pod, in.Scene.Observed)
		ok = ok && podview.GenerationOf(a.last) < view.Generation && !in.Scene.ephemeral(a.spec.Name)
	}
	return ok && in.Scene.Pod.DeletionTimestamp == nil && (a.last == nil || a.last.State != cri.ContainerRunning)
}

// setWaiting gives a container a waiting reason.
func (a *about) setWaiting(w podstatus.Waiting) {
	if a.now.State.Terminated != nil {
		a.now.LastTerminationState = a.now.State
	}
	a.now.Ready = false
	a.now.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
}

// waiting is how a container waits that has not run yet.
func (in described) waiting() corev1.ContainerState {
	reason := podstatus.ReasonContainerCreating
	if len(in.Scene.Pod.Spec.InitContainers) > 0 {
		reason = podstatus.ReasonPodInitializing
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// begun reports whether a regular container was made since the last restart of all.
func (in described) begun() bool {
	return slices.ContainsFunc(in.Scene.Pod.Spec.Containers, func(c corev1.Container) bool {
		last := in.Scene.last(c.Name)
		return last != nil && generationOf(*last) == in.Scene.startGeneration()
	})
}

// mayRestartAll reports whether the pod may have started over, or may.
func (in described) mayRestartAll() bool {
	return podutil.AllContainersCouldRestart(&in.Scene.Pod.Spec) || in.Scene.generation() > 0
}

// restartedAll is what the kubelet would say if it had not removed the containers of a pod that starts over.
func (in described) restartedAll() containerStatuses {
	return in.each(kubeletStatuses(in.inOneGeneration()), func(a *about) {
		if a.inferred() && !in.begun() {
			a.now.State, a.now.Ready = in.waiting(), false
		}
		if in.Scene.Pod.DeletionTimestamp == nil && a.last != nil && a.last.State != cri.ContainerRunning &&
			!a.ephemeral && generationOf(*a.last) < in.Scene.startGeneration() {
			a.setWaiting(podstatus.Waiting{Reason: podstatus.ReasonRestartingAllContainers})
		}
	})
}

// startGeneration is that of the containers that are started.
func (s scene) startGeneration() int {
	if s.restartsAll() {
		return s.generation() + 1
	}
	return s.generation()
}

// onlyEnds returns a scene without the instances that have no end although others came after.
func (in described) onlyEnds() described {
	in.Scene.Observed.Containers = slices.DeleteFunc(slices.Clone(in.Scene.Observed.Containers), func(c cri.Container) bool {
		return c.State != cri.ContainerExited && c.ID != in.Scene.last(c.Name).ID
	})
	return in
}

// inOneGeneration returns a scene in which nobody has ever asked for a restart of all.
func (in described) inOneGeneration() described {
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
