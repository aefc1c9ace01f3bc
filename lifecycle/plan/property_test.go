// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/probe"
)

// TestPlanReachesAFixedPoint plans for generated pods with arbitrary containers in the runtime, executes the plan, and plans
// again. No plan contradicts itself or the observation, and after a few plans no action is left.
func TestPlanReachesAFixedPoint(t *testing.T) {
	for seed := range uint64(5000) {
		planToFixedPoint(t, seed)
	}
}

func FuzzPlanReachesAFixedPoint(f *testing.F) {
	f.Add(uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64) { planToFixedPoint(t, seed) })
}

func planToFixedPoint(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	pod := podtest.Generate(rnd, "p", fmt.Sprint("uid-", seed))
	m := newModel(pod)
	m.disturb(rnd)
	if rnd.IntN(10) == 0 {
		pod.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	m.final = rnd.IntN(10) == 0
	m.runToFixedPoint(t, podtest.LazyText(func() string { return fmt.Sprint("seed ", seed) }))
}

// mayRun reports whether the container is running or in state unknown.
func mayRun(c *cri.Container) bool {
	return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
}

// check verifies a plan against the state that it was computed from.
func (m *model) check(t testing.TB, a *plan.Actions, context fmt.Stringer) {
	t.Helper()
	killed := m.checkKills(t, a, context)
	for _, id := range a.StopSandboxes {
		require.NotNil(t, m.sandbox(id), "stops a missing sandbox: %s", context)
		for _, c := range m.observed.Containers {
			require.False(t, c.SandboxID == id && mayRun(&c) && !killed[c.ID], "%s is not killed before its sandbox: %s", c.ID, context)
		}
	}
	m.checkRemovals(t, a, killed, context)
	m.checkSandbox(t, a, context)
	m.checkStarts(t, a, killed, context)
	if a.PodTerminal || m.final || m.pod.DeletionTimestamp != nil {
		require.True(t, a.PodTerminal, context)
		require.Nil(t, a.Sandbox, context)
		require.Empty(t, a.Start, context)
		require.Empty(t, a.BackOff, context)
	}
	var wake time.Time
	for _, w := range a.BackOff {
		require.True(t, w.Until.After(m.now), "back-off has expired: %s", context)
		require.LessOrEqual(t, w.Delay, 5*time.Minute, context)
		require.LessOrEqual(t, w.Until.Sub(m.now), w.Delay, "back-off ends later than its delay: %s", context)
		if wake.IsZero() || w.Until.Before(wake) {
			wake = w.Until
		}
	}
	require.Equal(t, wake, a.WakeAt, context)
}

func (m *model) checkKills(t testing.TB, a *plan.Actions, context fmt.Stringer) (killed map[string]bool) {
	t.Helper()
	killed = map[string]bool{}
	for _, k := range a.Kill {
		c := m.container(k.ID)
		require.NotNil(t, c, "kills a missing container: %s", context)
		require.True(t, mayRun(c), "kills an exited container: %s", context)
		require.Equal(t, c.Name, k.Name, context)
		require.False(t, killed[k.ID], "kills %s twice: %s", k.ID, context)
		require.GreaterOrEqual(t, k.Grace, 2*time.Second, context)
		require.NotContains(t, k.WaitFor, k.Name, "kill of a container waits for this container: %s", context)
		killed[k.ID] = true
	}
	return killed
}

func (m *model) checkRemovals(t testing.TB, a *plan.Actions, killed map[string]bool, context fmt.Stringer) {
	t.Helper()
	for _, id := range a.RemoveContainers {
		c := m.container(id)
		require.NotNil(t, c, "removes a missing container: %s", context)
		require.False(t, mayRun(c) && !killed[id], "removes a running container: %s", context)
	}
	for _, id := range a.RemoveSandboxes {
		sb := m.sandbox(id)
		require.NotNil(t, sb, "removes a missing sandbox: %s", context)
		require.Equal(t, cri.SandboxNotReady, sb.State, context)
		for _, c := range m.observed.Containers {
			require.False(t, c.SandboxID == id && mayRun(&c), "removes a sandbox while %s runs: %s", c.ID, context)
		}
	}
	if m.pod.DeletionTimestamp != nil {
		return
	}
	for name := range podtest.SpecNames(m.pod) {
		exited := m.instances(name, func(c *cri.Container) bool { return c.State == cri.ContainerExited })
		if len(exited) == 0 {
			continue
		}
		last := slices.MaxFunc(exited, func(a, b *cri.Container) int { return int(a.Attempt) - int(b.Attempt) })
		require.NotContains(t, a.RemoveContainers, last.ID, "the last exit code of a container would be lost: %s", context)
		require.NotContains(t, a.RemoveSandboxes, last.SandboxID, "the last exit code of a container would be lost: %s", context)
	}
}

// checkSandbox requires that containers are started in the ready sandbox only.
func (m *model) checkSandbox(t testing.TB, a *plan.Actions, context fmt.Stringer) {
	t.Helper()
	if len(a.Start) == 0 && a.Sandbox == nil {
		return
	}
	for _, sb := range m.observed.Sandboxes {
		if sb.State == cri.SandboxReady && (a.Sandbox != nil || sb.ID != a.SandboxID) {
			require.Contains(t, a.StopSandboxes, sb.ID, "two sandboxes would be ready: %s", context)
		}
	}
	if a.Sandbox == nil {
		sb := m.sandbox(a.SandboxID)
		require.NotNil(t, sb, context)
		require.Equal(t, cri.SandboxReady, sb.State, context)
		require.NotContains(t, a.StopSandboxes, sb.ID, context)
	}
}

func (m *model) checkStarts(t testing.TB, a *plan.Actions, killed map[string]bool, context fmt.Stringer) {
	t.Helper()
	seen := map[string]bool{}
	for _, w := range a.BackOff {
		require.False(t, seen[w.Name], "container has two back-offs: %s", context)
		seen[w.Name] = true
	}
	for _, s := range a.Start {
		name := s.Container.Name
		require.False(t, seen[name], "%s starts twice, or starts during its back-off: %s", name, context)
		seen[name] = true
		require.True(t, podtest.SpecNames(m.pod)[name], context)
		for _, live := range m.instances(name, mayRun) {
			require.True(t, killed[live.ID], "%s starts beside %s: %s", name, live.ID, context)
		}
		for _, c := range m.instances(name, func(c *cri.Container) bool { return c.Attempt >= s.Attempt }) {
			require.True(t, c.ID == s.CreatedID || slices.Contains(a.RemoveContainers, c.ID), "%s gets an attempt that is not above that of %s: %s", name, c.ID, context)
		}
		if s.CreatedID != "" {
			c := m.container(s.CreatedID)
			require.Equal(t, cri.ContainerCreated, c.State, context)
			require.Equal(t, a.SandboxID, c.SandboxID, context)
			require.Nil(t, a.Sandbox, context)
			require.NotContains(t, a.RemoveContainers, c.ID, context)
		}
		if podtest.Find(m.pod.Spec.Containers, name) != nil {
			m.requireInitialized(t, a, s.Generation, context)
		}
	}
}

// requireInitialized requires that, in the current sandbox and restart-all generation, every init container has succeeded and
// every sidecar was created, or that a regular container was created, which proves it.
func (m *model) requireInitialized(t testing.TB, a *plan.Actions, round int, context fmt.Stringer) {
	t.Helper()
	here := func(c *cri.Container) bool {
		return a.Sandbox == nil && c.SandboxID == a.SandboxID && podview.GenerationOf(c) == round
	}
	for i := range m.pod.Spec.Containers {
		if len(m.instances(m.pod.Spec.Containers[i].Name, here)) > 0 {
			return
		}
	}
	proven := false // proven is true once a later init container was created
	for i := range slices.Backward(m.pod.Spec.InitContainers) {
		spec := &m.pod.Spec.InitContainers[i]
		instances := m.instances(spec.Name, here)
		passed := slices.ContainsFunc(instances, func(c *cri.Container) bool {
			return podtest.IsSidecar(spec) || c.State == cri.ContainerExited && c.ExitCode == 0
		})
		require.True(t, passed || proven, "init container %s has not succeeded: %s", spec.Name, context)
		proven = proven || len(instances) > 0
	}
}

// requireSpecState requires that a pod without pending actions has the state of its spec.
func (m *model) requireSpecState(t testing.TB, a *plan.Actions, context fmt.Stringer) {
	t.Helper()
	ready := 0
	for _, sb := range m.observed.Sandboxes {
		if sb.State == cri.SandboxReady {
			ready++
		}
	}
	if m.pod.DeletionTimestamp != nil {
		require.Empty(t, m.observed.Sandboxes, context)
		for _, c := range m.observed.Containers {
			require.False(t, mayRun(&c), context)
		}
		return
	}
	if a.PodTerminal {
		require.Zero(t, ready, context)
		for _, c := range m.observed.Containers {
			require.False(t, mayRun(&c), context)
		}
		return
	}
	require.Equal(t, 1, ready, context)
	live := 0
	for name := range podtest.SpecNames(m.pod) {
		instances := m.instances(name, mayRun)
		require.LessOrEqual(t, len(instances), 1, "%s: %s", name, context)
		c := podtest.Find(m.pod.Spec.Containers, name)
		if c != nil {
			live += len(instances)
		}
		if always := c != nil && c.RestartPolicy == nil && m.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways; always ||
			podtest.IsSidecar(podtest.Find(m.pod.Spec.InitContainers, name)) {
			require.Len(t, instances, 1, "%s: %s", name, context)
		}
	}
	require.Positive(t, live, "no container runs and no action is left: %s", context)
}

// disturb adds sandboxes and containers that an agent may find in the runtime: exited and running containers of all ages,
// states and restart-all generations, and containers that the spec does not name.
func (m *model) disturb(rnd *rand.Rand) {
	m.observed.UID, m.observed.Name, m.observed.Namespace = string(m.pod.UID), m.pod.Name, m.pod.Namespace
	if rnd.IntN(10) == 0 {
		return
	}
	for attempt := range uint32(rnd.IntN(4)) {
		sb := cri.Sandbox{ID: fmt.Sprint("s", attempt), Attempt: attempt, CreatedAt: epoch, State: cri.SandboxNotReady}
		if rnd.IntN(3) > 0 {
			sb.State = cri.SandboxReady
		}
		if rnd.IntN(4) > 0 {
			sb.IPs = []string{"10.0.0.1"}
		}
		if rnd.IntN(10) == 0 {
			sb.Annotations = map[string]string{podview.AnnotationNetwork: "Node"}
		}
		m.observed.Sandboxes = append(m.observed.Sandboxes, sb)
	}
	names := append(slices.Sorted(maps.Keys(podtest.SpecNames(m.pod))), "stranger")
	for range rnd.IntN(8) {
		m.addRandomInstance(rnd, podtest.Pick(rnd, names))
	}
}

// addRandomInstance adds one container instance with a random state.
func (m *model) addRandomInstance(rnd *rand.Rand, name string) {
	attempt := uint32(rnd.IntN(4))
	if len(m.instances(name, func(c *cri.Container) bool { return c.Attempt == attempt })) > 0 {
		return
	}
	c := cri.Container{
		ID: fmt.Sprint(name, attempt), Name: name, Attempt: attempt, SandboxID: fmt.Sprint("s", rnd.IntN(4)),
		CreatedAt: epoch.Add(-time.Duration(rnd.IntN(1000)) * time.Second),
		State: podtest.Pick(rnd, []cri.ContainerState{
			cri.ContainerCreated, cri.ContainerRunning, cri.ContainerRunning, cri.ContainerExited, cri.ContainerExited, cri.ContainerUnknown,
		}),
		Annotations: map[string]string{podview.AnnotationGeneration: podtest.Pick(rnd, []string{"0", "0", "0", "1", "2", "x"})},
	}
	if c.State == cri.ContainerExited {
		c.ExitCode, c.Reason = podtest.Pick(rnd, []int32{0, 0, 1, 42, 88, 137}), podtest.Pick(rnd, []string{"Completed", "Error", "OOMKilled"})
		c.FinishedAt = podtest.Pick(rnd, []time.Time{{}, epoch, epoch.Add(-time.Hour), epoch.Add(time.Hour)})
	}
	spec := podtest.Find(slices.Concat(m.pod.Spec.InitContainers, m.pod.Spec.Containers), name)
	if spec != nil {
		c.Annotations[podspec.AnnotationHash] = podtest.Pick(rnd, []string{podspec.Hash(spec), podspec.Hash(spec), "0"})
		loop := fmt.Sprintf("%s %ds %d", plan.CrashLoopKey(m.pod, spec), 10<<rnd.IntN(5), epoch.UnixNano())
		c.Annotations[plan.AnnotationCrashLoop] = podtest.Pick(rnd, []string{"", loop, loop, "junk"})
		for _, kind := range []probe.Kind{probe.Startup, probe.Liveness} {
			m.probes[probe.Key{PodUID: string(m.pod.UID), Container: name, Kind: kind}] = probe.Value{
				ContainerID: c.ID, Outcome: podtest.Pick(rnd, []probe.Outcome{probe.Unknown, probe.Success, probe.Success, probe.Failure}),
			}
		}
	}
	m.observed.Containers = append(m.observed.Containers, c)
}

func cloneObserved(p cri.Pod) cri.Pod {
	p.Sandboxes, p.Containers = slices.Clone(p.Sandboxes), slices.Clone(p.Containers)
	return p
}

func describePlan(a plan.Actions) string {
	var out bytes.Buffer
	describe(&out, a)
	return out.String()
}
