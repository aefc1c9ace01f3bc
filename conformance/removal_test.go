// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

func TestRemoval(t *testing.T) { run(t, removal) }
func FuzzRemoval(f *testing.F) { fuzz(f, removal) }

// removal compares the kubelet with itself: its decision is the same after nodeagent has removed containers and sandboxes
// that the kubelet still has.
var removal = conformance.Comparison[scene, decision]{
	Make: func(c *conformance.Choices) scene {
		s := newScene(c)
		s.Pod.DeletionTimestamp, s.Pod.DeletionGracePeriodSeconds = nil, nil // otherwise nodeagent removes everything
		s.Observed.Containers = slices.DeleteFunc(s.Observed.Containers, func(c cri.Container) bool { return s.spec(c.Name) == nil })
		for i := range s.Observed.Containers {
			if c := &s.Observed.Containers[i]; c.State == cri.ContainerCreated {
				c.State = cri.ContainerUnknown // nodeagent replaces created containers, the kubelet keeps them
			}
		}
		for _, spec := range s.specs() {
			for i := range spec.RestartPolicyRules {
				spec.RestartPolicyRules[i].Action = corev1.ContainerRestartRuleActionRestart // a restart of all containers removes containers before new instances start
			}
		}
		return s
	},
	Kubelet: kubeletPlans,
	Ours: func(s scene) decision {
		a := plan.Plan(plan.State{Pod: s.Pod, Observed: s.Observed, Now: sceneTime, Probes: s.probeResults})
		s.Observed.Containers = slices.DeleteFunc(slices.Clone(s.Observed.Containers), func(c cri.Container) bool {
			return slices.Contains(a.RemoveContainers, c.ID)
		})
		s.Observed.Sandboxes = slices.DeleteFunc(slices.Clone(s.Observed.Sandboxes), func(sb cri.Sandbox) bool {
			return slices.Contains(a.RemoveSandboxes, sb.ID)
		})
		return kubeletPlans(s)
	},
	Same: func(before, after decision) bool {
		after.StopSandboxes = before.StopSandboxes // removed sandboxes are no longer stopped
		return reflect.DeepEqual(before, after)
	},
}
