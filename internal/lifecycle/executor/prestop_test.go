// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// The time of a preStop hook reduces the grace period of the container, which is at least two seconds.
func TestPreStopTimeReducesGracePeriod(t *testing.T) {
	tests := map[string]struct {
		script critest.Script
		grace  time.Duration
		want   []string
		until  time.Duration // time when the container has exited
		fails  bool
	}{
		"hook returns at once": {
			script: critest.Script{Exec: execTaking(0, 0)}, grace: 10 * time.Second,
			want: []string{"0s ExecSync uid-a-main-0", "0s StopContainer uid-a-main-0 10s"},
		},
		"hook takes part of the grace period, counted in whole seconds": {
			script: critest.Script{Exec: execTaking(2500*time.Millisecond, 0)}, grace: 10 * time.Second,
			want:  []string{"0s ExecSync uid-a-main-0", "2.5s StopContainer uid-a-main-0 8s"},
			until: 2500 * time.Millisecond,
		},
		"hook takes nearly the whole grace period": {
			script: critest.Script{Exec: execTaking(9*time.Second, 0), Stop: &critest.Exit{After: critest.Never}}, grace: 10 * time.Second,
			want:  []string{"0s ExecSync uid-a-main-0", "9s StopContainer uid-a-main-0 2s"},
			until: 11 * time.Second,
		},
		"hook exceeds the grace period, container exits on SIGTERM": {
			script: critest.Script{Exec: execTaking(time.Hour, 0)}, grace: 5 * time.Second,
			want:  []string{"0s ExecSync uid-a-main-0", "5s StopContainer uid-a-main-0 2s"},
			until: 5 * time.Second, fails: true,
		},
		"hook exceeds the grace period, container is killed": {
			script: critest.Script{Exec: execTaking(time.Hour, 0), Stop: &critest.Exit{After: critest.Never}}, grace: 5 * time.Second,
			want:  []string{"0s ExecSync uid-a-main-0", "5s StopContainer uid-a-main-0 2s"},
			until: 7 * time.Second, fails: true,
		},
		"hook fails": {
			script: critest.Script{Exec: execTaking(3*time.Second, 1)}, grace: 10 * time.Second,
			want:  []string{"0s ExecSync uid-a-main-0", "3s StopContainer uid-a-main-0 7s"},
			until: 3 * time.Second, fails: true,
		},
		"no grace period": {
			script: critest.Script{Exec: execTaking(time.Hour, 0), Stop: &critest.Exit{After: critest.Never}},
			want:   []string{"0s ExecSync uid-a-main-0", "0s StopContainer uid-a-main-0 2s"},
			until:  2 * time.Second, fails: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a"), setting{scripts: map[string]critest.Script{"main": tt.script}})
				s.startContainers("main")
				k := newKill("main", tt.grace)
				k.PreStop = podtest.Exec("bye")
				require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{k}}), "a failed hook does not prevent the stop")
				s.requireCallsOf(tt.want)
				require.Equal(t, tt.until, time.Since(s.began))
				events := []string{"Killing main uid-a-main-0"}
				if tt.fails {
					events = append(events, "FailedPreStopHook! main uid-a-main-0")
				}
				s.requireEvents(events...)
			})
		})
	}
}

// The preStop hook of a sidecar starts at once, while the containers that terminate earlier still run.
func TestPreStopOfSidecarStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "proxy"), setting{scripts: map[string]critest.Script{
			"main": critest.ExitAfterStop(3500*time.Millisecond, 0), "proxy": {Exec: execTaking(2*time.Second, 0)},
		}})
		s.startContainers("main", "proxy")
		proxy := newKill("proxy", 10*time.Second, "main")
		proxy.PreStop = podtest.Exec("bye")
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("main", 10*time.Second), proxy}}))
		s.requireCallsOf([]string{
			"0s StopContainer uid-a-main-0 10s", "0s ExecSync uid-a-proxy-0", "3.5s StopContainer uid-a-proxy-0 7s",
		})
	})
}

// A hook that takes the whole grace period leaves no time to wait for other containers.
func TestPreStopUsesUpGracePeriodOfSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "side", "proxy"), setting{scripts: map[string]critest.Script{
			"main": critest.IgnoreTERM(), "side": critest.IgnoreTERM(), "proxy": {Exec: execTaking(time.Hour, 0)},
		}})
		s.startContainers("main", "side", "proxy")
		proxy := newKill("proxy", 5*time.Second, "main", "side")
		proxy.PreStop = podtest.Exec("bye")
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("main", time.Minute), newKill("side", time.Minute), proxy}}))
		s.requireCallsOf([]string{
			"0s StopContainer uid-a-main-0 1m0s", "0s StopContainer uid-a-side-0 1m0s", "0s ExecSync uid-a-proxy-0",
			"5s StopContainer uid-a-proxy-0 2s",
		})
	})
}

// A hook is cancelled when its container has stopped, and no handler runs after that.
func TestPreStopCancelledWhenContainerHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Time
		s := newScene(t, podtest.Pod("a"), setting{scripts: map[string]critest.Script{"main": {
			Exec: func(ctx context.Context, _ []string) (cri.ExecResult, error) {
				<-ctx.Done()
				ended = time.Now()
				return cri.ExecResult{}, ctx.Err()
			},
			Stop: &critest.Exit{After: time.Second},
		}}})
		s.startContainers("main")
		k := newKill("main", 5*time.Second)
		k.PreStop = podtest.Exec("bye")
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{k}}))
		require.Equal(t, 6*time.Second, ended.Sub(s.began))
	})
}
