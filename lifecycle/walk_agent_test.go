// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// mortal is an agent with all that it is made of, which can be killed between any two calls of the runtime. What it keeps
// on disk is below dir, where the next one finds it.
type mortal struct {
	reconciler *lifecycle.Reconciler
	die        context.CancelFunc
	dead       atomic.Bool
	ended      sync.WaitGroup
}

// world is what is around an agent.
type world struct {
	ask    asker                                // the runtime
	status func(*corev1.Pod, *corev1.PodStatus) // hears what is said of pods
	log    *slog.Logger                         // may be nil
}

func start(t *testing.T, rt *critest.Runtime, dir string, around world) *mortal {
	t.Helper()
	m := &mortal{}
	ctx, cancel := context.WithCancel(t.Context())
	m.die = func() { m.dead.Store(true); cancel() }
	via := line{Runtime: rt, ask: func(ctx context.Context, op, id string, call func(context.Context) error) error {
		if m.dead.Load() {
			return errDead
		}
		return around.ask(ctx, op, id, call)
	}}
	set := probe.NewSet(probe.Options{Store: filepath.Join(dir, "probes"), Rand: func() float64 { return 0 }, Hooks: probe.Hooks{
		Changed: func(k probe.Key, _ probe.Value) { m.reconciler.Changed(k.PodUID) },
	}})
	generator := pleg.New(via, pleg.Options{Sink: func(events []pleg.Event) {
		for _, e := range events {
			m.reconciler.Changed(e.PodUID)
		}
	}})
	o := lifecycle.Options{
		PodRoot: filepath.Join(dir, "pods"), Rand: func() float64 { return 0.5 }, Logger: around.log,
		Probes: podprobe.NewPods(set, podprobe.Options{Execer: podprobe.CRI(via)}),
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			if !m.dead.Load() {
				around.status(pod, st)
			}
		}},
	}
	o.Spec.LogRoot = filepath.Join(dir, "logs")
	m.reconciler = lifecycle.New(via, generator, o)
	m.ended.Go(func() { _ = generator.Run(ctx) })
	m.ended.Go(func() { _ = set.Run(ctx) })
	m.ended.Go(func() { _ = m.reconciler.Run(ctx) })
	t.Cleanup(m.stop)
	return m
}

// stop kills the agent, if it still lives, and waits until its goroutines have returned.
func (m *mortal) stop() {
	m.die()
	m.ended.Wait()
}

func (m *mortal) set(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	require.NoError(t, m.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

var errDead = errors.New("the agent is dead")

// asker makes a call to the runtime, or does not. id is that of the object, of the sandbox in CreateContainer, and the
// UID of the pod in RunPodSandbox.
type asker func(ctx context.Context, op, id string, call func(context.Context) error) error

// line is a runtime at the other end of a line: what changes something, and what runs inside, goes through ask.
type line struct {
	*critest.Runtime
	ask asker
}

func (l line) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (id string, err error) {
	return answer(ctx, l, "RunPodSandbox", c.Pod.UID, func(ctx context.Context) (string, error) { return l.Runtime.RunSandbox(ctx, c) })
}

func (l line) StopSandbox(ctx context.Context, id string) error {
	return l.ask(ctx, "StopPodSandbox", id, func(ctx context.Context) error { return l.Runtime.StopSandbox(ctx, id) })
}

func (l line) RemoveSandbox(ctx context.Context, id string) error {
	return l.ask(ctx, "RemovePodSandbox", id, func(ctx context.Context) error { return l.Runtime.RemoveSandbox(ctx, id) })
}

func (l line) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
	return answer(ctx, l, "CreateContainer", sandboxID, func(ctx context.Context) (string, error) {
		return l.Runtime.CreateContainer(ctx, sandboxID, c, s)
	})
}

func (l line) StartContainer(ctx context.Context, id string) error {
	return l.ask(ctx, "StartContainer", id, func(ctx context.Context) error { return l.Runtime.StartContainer(ctx, id) })
}

func (l line) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return l.ask(ctx, "StopContainer", id, func(ctx context.Context) error { return l.Runtime.StopContainer(ctx, id, grace) })
}

func (l line) RemoveContainer(ctx context.Context, id string) error {
	return l.ask(ctx, "RemoveContainer", id, func(ctx context.Context) error { return l.Runtime.RemoveContainer(ctx, id) })
}

func (l line) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	return answer(ctx, l, "ExecSync", id, func(ctx context.Context) (cri.ExecResult, error) {
		return l.Runtime.ExecSync(ctx, id, cmd, timeout)
	})
}

// answer makes a call that has a result, which is lost with an error. A call that comes late has nobody to answer to.
func answer[T any](ctx context.Context, l line, op, id string, call func(context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	err := l.ask(ctx, op, id, func(ctx context.Context) error {
		r, err := call(ctx)
		result <- r
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-result, nil
}
