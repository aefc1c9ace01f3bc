// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// idleState returns the state of a pod of the given kind that needs no action.
func idleState(tb testing.TB, kind string, i int) plan.State {
	tb.Helper()
	pod := podtest.Pod(fmt.Sprint("p", i), "serve", "serve2")
	pod.UID = types.UID(fmt.Sprint("uid-", i))
	podtest.ExamplePods()[kind](pod)
	m := newModel(pod)
	m.runToFixedPoint(tb, podtest.LazyText(func() string { return kind }))
	return m.state()
}

// Most syncs of a pod find no change: a plan without actions must not allocate.
func TestPlanIdleAllocatesNothing(t *testing.T) {
	for kind := range podtest.ExamplePods() {
		t.Run(kind, func(t *testing.T) {
			s := idleState(t, kind, 0)
			a := plan.Plan(s)
			require.True(t, a.IsIdle() && !a.PodTerminal)
			assert.Zero(t, testing.AllocsPerRun(100, func() { plan.Plan(s) }))
		})
	}
	t.Run("terminated", func(t *testing.T) {
		s := idleState(t, "sidecar", 0)
		for i := range s.Observed.Containers {
			s.Observed.Containers[i].State = cri.ContainerExited
		}
		s.Observed.Sandboxes[0].State = cri.SandboxNotReady
		s.Previous, s.StoppedSandboxes = &corev1.PodStatus{Phase: corev1.PodFailed}, map[string]bool{s.Observed.Sandboxes[0].ID: true}
		a := plan.Plan(s)
		require.True(t, a.IsIdle() && a.PodTerminal)
		assert.Zero(t, testing.AllocsPerRun(100, func() { plan.Plan(s) }))
	})
}

// BenchmarkPlanIdle plans 1,000 pods of all kinds that need no action.
func BenchmarkPlanIdle(b *testing.B) {
	names := slices.Sorted(maps.Keys(podtest.ExamplePods()))
	states := make([]plan.State, 1000)
	for i := range states {
		states[i] = idleState(b, names[i%len(names)], i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range states {
			if a := plan.Plan(states[i]); !a.IsIdle() {
				b.Fatal("not idle")
			}
		}
	}
}
