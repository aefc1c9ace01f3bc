// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// planExceptions convert the kubelet's decision into ours, in this order.
var planExceptions = []conformance.Exception[scene, decision]{{
	Name:   "work is over",
	Reason: "a pod whose containers have all terminated and are not restarted is stopped at once; the kubelet may create a new sandbox first",
	When:   scene.isCompleted,
	Want:   func(s scene, _ decision) decision { return s.stopAll() },
}, {
	Name:   "not named",
	Reason: "a container that is not in the spec is stopped; the kubelet ignores it, or fails to stop the pod",
	When:   func(s scene) bool { return !s.isCompleted() && len(s.notInSpec()) > 0 },
	Want: func(s scene, _ decision) decision {
		named := s
		named.Observed.Containers = slices.Clone(s.Observed.Containers)
		for i := range named.Observed.Containers {
			if c := &named.Observed.Containers[i]; s.spec(c.Name) == nil {
				c.State = cri.ContainerExited
			}
		}
		d := kubeletPlans(named)
		return s.stop(d, s.notInSpec())
	},
}, {
	Name:   "nothing has run",
	Reason: "a pod with restart policy Never without any started container gets a new sandbox, even if containers were created",
	When: func(s scene) bool {
		return s.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && s.Pod.DeletionTimestamp == nil && s.hasCreated() && !s.ranInGeneration()
	},
	Want: func(s scene, d decision) decision {
		if !d.stops(s) || d.Sandbox != "" {
			return d
		}
		empty := s
		empty.Observed.Containers = nil
		d = kubeletPlans(empty)
		for i := range d.Starts {
			if last := s.last(d.Starts[i].Name); last != nil {
				d.Starts[i].Attempt = last.Attempt + 1
			}
		}
		return d
	},
}, {
	Name:   "never started",
	Reason: "a container that was created and never started is no instance: it is started, or its replacement has the same attempt",
	When:   scene.hasCreated,
	Want: func(s scene, d decision) decision {
		for i := range d.Starts {
			if last := s.newest(d.Starts[i].Name); last != nil && last.State == cri.ContainerCreated {
				d.Starts[i].Attempt--
			}
		}
		return d
	},
}, {
	Name:   "ephemeral never started",
	Reason: "an ephemeral container that was created is started; the kubelet never starts it",
	When:   func(s scene) bool { return s.hasCreated() && len(s.Pod.Spec.EphemeralContainers) > 0 },
	Want: func(s scene, d decision) decision {
		e := s.Pod.Spec.EphemeralContainers[0]
		last, target := s.last(e.Name), s.last(e.TargetContainerName)
		if d.stops(s) || s.formerTarget() != nil || last == nil || last.State != cri.ContainerCreated || e.TargetContainerName != "" && target == nil {
			return d
		}
		first := started{Name: e.Name, Attempt: last.Attempt}
		if target != nil {
			first.Target = target.ID
		}
		d.Starts = slices.Insert(d.Starts, 0, first)
		return d
	},
}, {
	Name:   "hook of a pod without grace period",
	Reason: "a pod without grace period has no time for a hook; the kubelet gives it one second",
	When:   func(s scene) bool { return s.Pod.DeletionTimestamp != nil && s.hasNoGrace() },
	Want:   func(_ scene, d decision) decision { return d.withoutHooks() },
}, {
	Name:   "two of a name",
	Reason: "of two running instances of one container the older one is stopped; the kubelet considers only the newer one",
	When:   func(s scene) bool { return len(s.replacedInstances()) > 0 },
	Want:   func(s scene, d decision) decision { return s.stop(d, s.replacedInstances()) },
}, {
	Name:   "in a former sandbox",
	Reason: "a container that runs in a previous sandbox is stopped; the kubelet treats it as the current container of the pod",
	When:   func(s scene) bool { return len(s.outsideNewestSandbox()) > 0 },
	Want: func(s scene, d decision) decision {
		if d.stops(s) {
			return d
		}
		return s.stop(d, s.outsideNewestSandbox())
	},
}, {
	Name:   "lost track of",
	Reason: "a container in unknown state is stopped with its pod, because it may be running; no hook runs in it",
	When:   func(s scene) bool { return len(s.inUnknownState()) > 0 },
	Want: func(s scene, d decision) decision {
		for _, c := range s.inUnknownState() {
			if d.stops(s) {
				d.kill(c.ID, plan.GracePeriod(s.Pod), false)
			} else if how, killed := d.Kills[c.ID]; killed {
				d.Kills[c.ID] = strings.TrimSuffix(how, afterHook)
			}
		}
		return d
	},
}, {
	Name:   "ephemeral in a pod that ends",
	Reason: "an ephemeral container is not started in a sandbox that was just stopped",
	When:   func(s scene) bool { return len(s.Pod.Spec.EphemeralContainers) > 0 },
	Want: func(_ scene, d decision) decision {
		if d.Sandbox == "" && len(d.StopSandboxes) > 0 {
			d.Starts = nil
		}
		return d
	},
}, {
	Name:   "created late",
	Reason: "a container that was created while another instance of it ran is ignored; the kubelet starts a second instance",
	When:   func(s scene) bool { return len(s.createdLate()) > 0 },
	Want:   func(s scene, _ decision) decision { return nodeagentPlans(s.withoutCreatedLate()) },
}}

// stops reports whether all sandboxes and containers of the pod are stopped.
func (d decision) stops(s scene) bool {
	return len(d.StopSandboxes) > 0 || len(s.Observed.Sandboxes) == 0
}

func (d decision) withoutHooks() decision {
	for id, how := range d.Kills {
		d.Kills[id] = strings.TrimSuffix(how, afterHook)
	}
	return d
}

// stop adds containers to the stopped ones. If all containers of the pod are restarted, they get the minimum grace period
// and no hook.
func (s scene) stop(d decision, list []cri.Container) decision {
	for _, c := range list {
		_, killed := d.Kills[c.ID]
		switch {
		case killed:
		case s.restartsAll() && !d.stops(s) && !s.ephemeral(c.Name):
			d.kill(c.ID, 2*time.Second, false)
		default:
			d.kill(c.ID, plan.GracePeriod(s.Pod), s.hook(c))
		}
	}
	return d
}

// stopAll returns the decision to stop all containers and sandboxes.
func (s scene) stopAll() decision {
	d := decision{Kills: map[string]string{}}
	for _, c := range s.Observed.Containers {
		if mayRun(c) {
			d.kill(c.ID, plan.GracePeriod(s.Pod), s.hook(c))
		}
	}
	for _, sb := range s.Observed.Sandboxes {
		d.StopSandboxes = append(d.StopSandboxes, sb.ID)
	}
	return d
}
