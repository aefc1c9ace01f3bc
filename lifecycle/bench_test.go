// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

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
	"github.com/seed81659283/nodeagent/lifecycle"
)

// kinds are pods of which a node is full: each changes a plain one.
var kinds = map[string]func(pod *corev1.Pod){
	"plain": func(*corev1.Pod) {},
	"init containers": func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{initContainer("setup0"), initContainer("setup1")}
	},
	"sidecar": func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{sidecar("proxy0"), initContainer("setup1"), sidecar("proxy2")}
	},
	"probes": func(pod *corev1.Pod) {
		proxy := sidecar("proxy0")
		proxy.StartupProbe, proxy.LivenessProbe = asks("started", 1), asks("alive", 10)
		pod.Spec.InitContainers = []corev1.Container{proxy}
		c := &pod.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = asks("started", 1), asks("ready", 10), asks("alive", 10)
	},
	"hooks": func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("hello"), PreStop: command("bye")}
	},
	"rules": func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88},
			},
		}}
	},
	"ephemeral container": func(pod *corev1.Pod) { addEphemeral(pod, "serve") },
}

// settledPod returns the state of a pod of a kind that is as it should be.
func settledPod(tb testing.TB, kind string, i int) lifecycle.State {
	tb.Helper()
	pod := testPod(fmt.Sprint("p", i), "serve", "serve2")
	pod.UID = types.UID(fmt.Sprint("uid-", i))
	kinds[kind](pod)
	m := newModel(pod)
	m.settle(tb, story(func() string { return kind }))
	return m.state()
}

// Nothing changes on most pods most of the time, and a plan for them is free.
func TestPlanIdleAllocatesNothing(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := settledPod(t, kind, 0)
			a := lifecycle.Plan(s)
			require.True(t, a.Idle() && !a.Done)
			assert.Zero(t, testing.AllocsPerRun(100, func() { lifecycle.Plan(s) }))
		})
	}
	t.Run("ended", func(t *testing.T) {
		s := settledPod(t, "sidecar", 0)
		for i := range s.Observed.Containers {
			s.Observed.Containers[i].State = cri.ContainerExited
		}
		s.Observed.Sandboxes[0].State = cri.SandboxNotReady
		s.Final, s.Stopped = true, map[string]bool{s.Observed.Sandboxes[0].ID: true}
		a := lifecycle.Plan(s)
		require.True(t, a.Idle() && a.Done)
		assert.Zero(t, testing.AllocsPerRun(100, func() { lifecycle.Plan(s) }))
	})
}

// BenchmarkPlanIdle plans for 1,000 pods of all kinds, none of which needs anything.
func BenchmarkPlanIdle(b *testing.B) {
	names := slices.Sorted(maps.Keys(kinds))
	states := make([]lifecycle.State, 1000)
	for i := range states {
		states[i] = settledPod(b, names[i%len(names)], i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range states {
			if a := lifecycle.Plan(states[i]); !a.Idle() {
				b.Fatal("not idle")
			}
		}
	}
}
