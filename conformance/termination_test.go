// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

func TestTerminationOrder(t *testing.T) { run(t, terminationOrder) }
func FuzzTerminationOrder(f *testing.F) { fuzz(f, terminationOrder) }

// waits has, for each container, the containers that must exit before it is stopped, directly or transitively.
type waits map[string][]string

var terminationOrder = conformance.Comparison[scene, waits]{
	Make: func(c *conformance.Choices) scene {
		s := newScene(c)
		last := s.last
		for i := range s.Observed.Containers {
			if c := &s.Observed.Containers[i]; last(c.Name).ID != c.ID {
				c.State = cri.ContainerExited
			}
		}
		return s
	},
	Kubelet: func(s scene) waits {
		running := s.running()
		order := kuberuntime.ConformanceOrder(s.Pod, running)
		maps.DeleteFunc(order, func(name string, _ []string) bool { return !slices.Contains(running, name) })
		return addTransitiveWaits(order)
	},
	Ours: func(s scene) waits {
		running, order := s.running(), map[string][]string{}
		for _, k := range plan.Teardown(plan.State{Pod: s.Pod, Observed: s.Observed}, time.Second).Kill {
			if len(k.WaitFor) > 0 && slices.Contains(running, k.Name) {
				order[k.Name] = k.WaitFor
			}
		}
		return addTransitiveWaits(order)
	},
	Exceptions: []conformance.Exception[scene, waits]{{
		Name:   "dead sidecar in between",
		Reason: "a sidecar waits for all later containers; the kubelet does not wait for those after a sidecar that is not running",
		When:   func(s scene) bool { return len(s.sidecars()) > 2 },
		Want: func(s scene, _ waits) waits {
			running, order := s.running(), map[string][]string{}
			var after []string
			for _, c := range s.Pod.Spec.Containers {
				if slices.Contains(running, c.Name) {
					after = append(after, c.Name)
				}
			}
			for _, name := range slices.Backward(s.sidecars()) {
				if slices.Contains(running, name) {
					order[name] = slices.Clone(after)
					after = append(after, name)
				}
			}
			return addTransitiveWaits(order)
		},
	}},
}

// addTransitiveWaits adds transitive waits, and removes containers that wait for no other container.
func addTransitiveWaits(order map[string][]string) waits {
	all := waits{}
	var follow func(of, name string)
	follow = func(of, name string) {
		for _, other := range order[name] {
			if !slices.Contains(all[of], other) {
				all[of] = append(all[of], other)
				follow(of, other)
			}
		}
	}
	for name := range order {
		follow(name, name)
		slices.Sort(all[name])
	}
	maps.DeleteFunc(all, func(_ string, list []string) bool { return len(list) == 0 })
	return all
}

// running returns the names of running containers.
func (s scene) running() (names []string) {
	for _, c := range s.Observed.Containers {
		if c.State == cri.ContainerRunning {
			names = append(names, c.Name)
		}
	}
	return names
}

// sidecars returns the names of the sidecars in the spec, in order.
func (s scene) sidecars() (names []string) {
	for i := range s.Pod.Spec.InitContainers {
		if c := &s.Pod.Spec.InitContainers[i]; podutil.IsRestartableInitContainer(c) {
			names = append(names, c.Name)
		}
	}
	return names
}
