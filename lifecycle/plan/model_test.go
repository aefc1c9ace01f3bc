// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/probe"
)

// model is a runtime that executes plans without errors. Its containers run until a test stops them.
type model struct {
	pod      *corev1.Pod
	observed cri.Pod
	now      time.Time
	final    bool
	probes   map[probe.Key]probe.Value
	stopped  map[string]bool // IDs of the sandboxes that plans have stopped
	created  int
}

func newModel(pod *corev1.Pod) *model {
	return &model{pod: pod, now: epoch, probes: map[probe.Key]probe.Value{}, stopped: map[string]bool{}}
}

func (m *model) state() plan.State {
	s := plan.State{Pod: m.pod, Observed: m.observed, Now: m.now, Probes: m.result, StoppedSandboxes: m.stopped}
	if m.final {
		s.Previous = &corev1.PodStatus{Phase: corev1.PodSucceeded}
	}
	return s
}

func (m *model) result(k probe.Key) (probe.Value, bool) {
	v, ok := m.probes[k]
	return v, ok
}

// runToFixedPoint plans and executes until no action is left. Init containers succeed, and sidecars start.
func (m *model) runToFixedPoint(t testing.TB, context fmt.Stringer) {
	t.Helper()
	for range 40 {
		pod, before := m.pod.DeepCopy(), cloneObserved(m.observed)
		a := plan.Plan(m.state())
		context := podtest.LazyText(func() string {
			return fmt.Sprintf("%s\npod %s\nobserved%s\nplan %s", context, podtest.JSON(pod.Spec), podtest.DescribeObserved(before), describePlan(a))
		})
		require.True(t, reflect.DeepEqual(a, plan.Plan(m.state())), "equal states give different plans: %s", context)
		require.True(t, reflect.DeepEqual(before, m.observed) && reflect.DeepEqual(pod, m.pod), "Plan modifies its input: %s", context)
		m.check(t, &a, context)
		m.apply(t, &a, context)
		switch {
		case !a.IsIdle():
			m.now = m.now.Add(time.Second)
		case !a.WakeAt.IsZero():
			m.now = a.WakeAt
		case !m.advance():
			m.requireSpecState(t, &a, context)
			return
		}
	}
	require.Fail(t, "plans do not reach a fixed point", "%s\nthen%s\nplan %s", context, podtest.DescribeObserved(m.observed), describePlan(plan.Plan(m.state())))
}

// advance makes init containers exit and sidecars start, and reports whether the model changed.
func (m *model) advance() (moved bool) {
	for i := range m.observed.Containers {
		c := &m.observed.Containers[i]
		spec := podtest.Find(m.pod.Spec.InitContainers, c.Name)
		if spec == nil || c.State != cri.ContainerRunning {
			continue
		}
		key := probe.Key{PodUID: string(m.pod.UID), Container: c.Name, Kind: probe.Startup}
		switch {
		case !podtest.IsSidecar(spec):
			c.State, c.ExitCode, c.FinishedAt = cri.ContainerExited, 0, m.now
			moved = true
		case spec.StartupProbe != nil && m.probes[key] != (probe.Value{ContainerID: c.ID, Outcome: probe.Success}):
			m.probes[key] = probe.Value{ContainerID: c.ID, Outcome: probe.Success}
			moved = true
		}
	}
	return moved
}

// apply executes the actions of a plan in the documented order.
func (m *model) apply(t testing.TB, a *plan.Actions, context fmt.Stringer) {
	t.Helper()
	exit := func(c *cri.Container) {
		c.State, c.ExitCode, c.FinishedAt = cri.ContainerExited, 137, m.now
	}
	for _, k := range a.Kill {
		exit(m.container(k.ID))
	}
	for _, id := range a.StopSandboxes {
		sb := m.sandbox(id)
		sb.State, sb.IPs = cri.SandboxNotReady, nil
		m.stopped[id] = true
	}
	for _, id := range a.RemoveContainers {
		m.observed.Containers = slices.DeleteFunc(m.observed.Containers, func(c cri.Container) bool { return c.ID == id })
	}
	sandbox := a.SandboxID
	if a.Sandbox != nil {
		sandbox = m.newID("s")
		for _, sb := range m.observed.Sandboxes {
			require.NotEqual(t, sb.Attempt, a.Sandbox.Attempt, "another sandbox has this attempt: %s", context)
		}
		m.observed.Sandboxes = append(m.observed.Sandboxes, cri.Sandbox{
			ID: sandbox, Attempt: a.Sandbox.Attempt, CreatedAt: m.now, IPs: []string{"10.0.0.1"},
		})
	}
	for _, s := range a.Start {
		if s.CreatedID != "" {
			c := m.container(s.CreatedID)
			c.State, c.StartedAt = cri.ContainerRunning, m.now
			continue
		}
		m.observed.Containers = append(m.observed.Containers, cri.Container{
			ID: m.newID(s.Container.Name), SandboxID: sandbox, Name: s.Container.Name, Attempt: s.Attempt,
			State: cri.ContainerRunning, CreatedAt: m.now, StartedAt: m.now, Annotations: map[string]string{
				podspec.AnnotationHash: podspec.Hash(s.Container), plan.AnnotationCrashLoop: s.CrashLoop,
				podview.AnnotationGeneration: fmt.Sprint(s.Generation),
			},
		})
	}
	for _, id := range a.RemoveSandboxes {
		m.observed.Sandboxes = slices.DeleteFunc(m.observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id })
		m.observed.Containers = slices.DeleteFunc(m.observed.Containers, func(c cri.Container) bool { return c.SandboxID == id })
	}
}

func (m *model) newID(word string) string {
	m.created++
	return fmt.Sprint(word, "-new", m.created)
}

func (m *model) container(id string) *cri.Container {
	i := slices.IndexFunc(m.observed.Containers, func(c cri.Container) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &m.observed.Containers[i]
}

func (m *model) sandbox(id string) *cri.Sandbox {
	i := slices.IndexFunc(m.observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &m.observed.Sandboxes[i]
}

// instances returns the instances of a container that satisfy keep.
func (m *model) instances(name string, keep func(*cri.Container) bool) (instances []*cri.Container) {
	for i := range m.observed.Containers {
		if c := &m.observed.Containers[i]; c.Name == name && keep(c) {
			instances = append(instances, c)
		}
	}
	return instances
}
