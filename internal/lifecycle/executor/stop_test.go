// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Containers are stopped in parallel, except containers that wait for other ones. The wait is part of the grace period.
func TestTerminationOrder(t *testing.T) {
	const s10 = 10 * time.Second
	tests := map[string]struct {
		scripts map[string]critest.Script
		kill    []plan.Kill
		want    []string
	}{
		"containers in parallel": {
			kill: []plan.Kill{newKill("main", s10), newKill("proxy", s10)},
			want: []string{"0s StopContainer uid-a-main-0 10s", "0s StopContainer uid-a-proxy-0 10s", "0s StopPodSandbox uid-a-0"},
		},
		"sidecar after regular containers": {
			scripts: map[string]critest.Script{"main": critest.ExitAfterStop(3*time.Second, 0)},
			kill:    []plan.Kill{newKill("proxy", s10, "main"), newKill("main", s10)},
			want:    []string{"0s StopContainer uid-a-main-0 10s", "3s StopContainer uid-a-proxy-0 7s", "3s StopPodSandbox uid-a-0"},
		},
		"sidecars one after another": {
			scripts: map[string]critest.Script{"main": critest.ExitAfterStop(3*time.Second, 0), "proxy": critest.ExitAfterStop(2*time.Second, 0)},
			kill:    []plan.Kill{newKill("main", s10), newKill("cache", s10, "main", "proxy"), newKill("proxy", s10, "main")},
			want: []string{
				"0s StopContainer uid-a-main-0 10s", "3s StopContainer uid-a-proxy-0 7s", "5s StopContainer uid-a-cache-0 5s",
				"5s StopPodSandbox uid-a-0",
			},
		},
		"wait counted in whole seconds": {
			scripts: map[string]critest.Script{"main": critest.ExitAfterStop(2900*time.Millisecond, 0)},
			kill:    []plan.Kill{newKill("main", s10), newKill("proxy", s10, "main")},
			want:    []string{"0s StopContainer uid-a-main-0 10s", "2.9s StopContainer uid-a-proxy-0 8s", "2.9s StopPodSandbox uid-a-0"},
		},
		"sidecar waits for the grace period and then gets two seconds": {
			scripts: map[string]critest.Script{"main": critest.IgnoreTERM(), "proxy": critest.IgnoreTERM()},
			kill:    []plan.Kill{newKill("main", time.Minute), newKill("proxy", s10, "main")},
			want:    []string{"0s StopContainer uid-a-main-0 1m0s", "10s StopContainer uid-a-proxy-0 2s", "1m0s StopPodSandbox uid-a-0"},
		},
		"waits share the grace period": {
			scripts: map[string]critest.Script{"main": critest.IgnoreTERM(), "proxy": critest.IgnoreTERM()},
			kill:    []plan.Kill{newKill("main", time.Minute), newKill("proxy", time.Minute), newKill("cache", s10, "main", "proxy")},
			want: []string{
				"0s StopContainer uid-a-main-0 1m0s", "0s StopContainer uid-a-proxy-0 1m0s", "10s StopContainer uid-a-cache-0 2s",
				"1m0s StopPodSandbox uid-a-0",
			},
		},
		"no wait for containers that are not stopped": {
			kill: []plan.Kill{newKill("proxy", s10, "main", "proxy")},
			want: []string{"0s StopContainer uid-a-proxy-0 10s", "0s StopPodSandbox uid-a-0"},
		},
		"no grace period": {
			scripts: map[string]critest.Script{"main": critest.IgnoreTERM()},
			kill:    []plan.Kill{newKill("main", 0)},
			want:    []string{"0s StopContainer uid-a-main-0 2s", "2s StopPodSandbox uid-a-0"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a", "main", "proxy", "cache"), setting{scripts: tt.scripts})
				s.startContainers("main", "proxy", "cache")
				require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: tt.kill, StopSandboxes: []string{"uid-a-0"}}))
				s.requireCallsOf(tt.want)
				for _, k := range tt.kill {
					require.Equal(t, cri.ContainerExited, s.state(k.Name))
				}
			})
		})
	}
}

// A container that cannot be stopped delays later containers and the executor at most for the grace period. The sandbox is
// kept, because the container may still run.
func TestStopErrorKeepsSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "proxy"), setting{})
		s.startContainers("main", "proxy")
		s.setFault("StopContainer", errors.New("out of order"))
		err := s.execute(t.Context(), plan.Actions{
			Kill: []plan.Kill{newKill("main", 10*time.Second), newKill("proxy", 10*time.Second, "main")}, StopSandboxes: []string{"uid-a-0"},
		})
		require.ErrorContains(t, err, "out of order")
		s.requireCalls("0s StopContainer uid-a-main-0 10s", "0s StopContainer uid-a-proxy-0 10s")
		s.requireEvents("Killing main uid-a-main-0", "Killing proxy uid-a-proxy-0", "FailedKillPod!")
	})
}

// An agent that stops makes no further calls and records no event.
func TestStopEndsWithContextWithoutEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podtest.Pod("a", "main", "proxy", "cache")
		s := newScene(t, pod, setting{scripts: map[string]critest.Script{
			"main": critest.IgnoreTERM(), "cache": {Exec: execTaking(time.Minute, 0)},
		}})
		s.startContainers("main", "proxy", "cache")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		hooked := newKill("cache", time.Minute)
		hooked.PreStop = podtest.Exec("bye")
		err := s.execute(ctx, plan.Actions{
			Kill: []plan.Kill{newKill("main", time.Minute), newKill("proxy", time.Minute, "main"), hooked}, StopSandboxes: []string{"uid-a-0"},
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.requireCallsOf([]string{"0s StopContainer uid-a-main-0 1m0s", "0s ExecSync uid-a-cache-0"})
		s.requireEvents("Killing main uid-a-main-0", "Killing proxy uid-a-proxy-0", "Killing cache uid-a-cache-0")
		require.Equal(t, cri.ContainerRunning, s.state("proxy"))
		require.Equal(t, cri.ContainerRunning, s.state("cache"))
	})
}

// A container with an invalid stop signal is killed after five consecutive failures. It keeps its grace period while the
// runtime is unavailable, and if a call has succeeded in between.
func TestContainerKilledAfterFiveStopFailures(t *testing.T) {
	tests := map[string]struct {
		errs []error // of the previous attempts
		want string  // grace period of the next attempt
	}{
		"four failures":                      {repeat(4, errors.New("no such signal")), "10s"},
		"five failures":                      {repeat(5, errors.New("no such signal")), "0s"},
		"more failures":                      {repeat(9, errors.New("no such signal")), "0s"},
		"runtime unavailable":                {repeat(9, cri.ErrUnavailable), "10s"},
		"success in between":                 {append(repeat(4, errors.New("no such signal")), nil, errors.New("no such signal")), "10s"},
		"runtime unavailable after failures": {append(repeat(5, errors.New("no such signal")), cri.ErrUnavailable), "0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a"), setting{})
				s.startContainers("main")
				a := plan.Actions{Kill: []plan.Kill{newKill("main", 10*time.Second)}}
				for _, err := range tt.errs {
					s.setFault("StopContainer", err)
					require.ErrorIs(t, s.execute(t.Context(), a), err)
				}
				s.setFault("StopContainer", nil)
				require.NoError(t, s.execute(t.Context(), a))
				s.requireCalls("0s StopContainer uid-a-main-0 " + tt.want)
			})
		})
	}
}

func repeat(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// The preStop hook and grace period of an orphaned pod come from the annotations of its containers.
func TestStopOfOrphanedPodUsesAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podWithHooks(corev1.Lifecycle{PreStop: podtest.Exec("bye")}, "main")
		s := newScene(t, pod, setting{scripts: map[string]critest.Script{"main": {Exec: execTaking(2*time.Second, 1)}}})
		s.startContainers("main")
		s.pod = nil
		k := newKill("main", 10*time.Second)
		k.PreStop = pod.Spec.Containers[0].Lifecycle.PreStop
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{k}}))
		s.requireCalls("0s ExecSync uid-a-main-0", "2s StopContainer uid-a-main-0 8s")
		s.requireEvents("Killing main uid-a-main-0", "FailedPreStopHook! main uid-a-main-0")
	})
}
