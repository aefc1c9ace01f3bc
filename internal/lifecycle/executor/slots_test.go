// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// The node of a scene has one start slot.

// hold occupies a start slot for another pod, as soon as one is free, for this time. taken waits until the slot is free again,
// and returns the time after which it was acquired.
func (s *scene) hold(long time.Duration) (taken func() time.Duration) {
	var at time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.node.Slots.Acquire(context.Background()) != nil {
			return
		}
		at = time.Now()
		time.Sleep(long)
		s.node.Slots.Release()
	}()
	synctest.Wait()
	return func() time.Duration { <-done; return at.Sub(s.began) }
}

// Only starts wait for a start slot: a busy node still stops and removes containers.
func TestOnlyStartsWaitForStartSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "side"), setting{})
		s.up("side")
		taken := s.hold(7 * time.Second)
		a := s.startOf("main")
		a.Sandbox, a.SandboxID, a.Kill = nil, "uid-a-0", []plan.Kill{kill("side", time.Second)}
		require.NoError(t, s.do(t.Context(), a))
		s.requireCalls("0s StopContainer uid-a-side-0 2s", "7s CreateContainer main", "7s StartContainer uid-a-main-0")
		taken()
	})
}

// The slot is released after every start, also after a failed one.
func TestStartSlotReleasedAfterEachStart(t *testing.T) {
	for _, broken := range []string{"", "RunPodSandbox", "PodSandboxStatus", "CreateContainer main", "StartContainer"} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a"), setting{})
				s.breaks(broken, errors.New("out of order"))
				require.Equal(t, broken != "", s.do(t.Context(), s.startOf("main")) != nil)
				taken := s.hold(0)
				require.Zero(t, taken())
			})
		})
	}
}

// A hung call occupies its slot for ten seconds.
func TestStartSlotReleasedDuringSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "side"), setting{scripts: map[string]critest.Script{"main": {StartAfter: 30 * time.Second}}})
		ended := make(chan error)
		go func() { ended <- s.do(t.Context(), s.startOf("main", "side")) }()
		synctest.Wait()
		taken := s.hold(time.Hour)
		require.NoError(t, <-ended)
		s.requireCalls("0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0",
			"30s CreateContainer side", "30s StartContainer uid-a-side-0") // does not wait for another slot
		require.Equal(t, 10*time.Second, taken())
	})
}

// A quick start is not logged as slow.
func TestQuickStartNotLoggedAsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newScene(t, podtest.Pod("a"), setting{
			scripts: map[string]critest.Script{"main": {StartAfter: 9 * time.Second}},
			node:    func(n *executor.Node) { n.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
		})
		s.up("main")
		time.Sleep(time.Minute)
		require.Contains(t, log.String(), "start container")
		require.NotContains(t, log.String(), "slow start")
	})
}

// During a pull another pod can start. The remaining start waits for a slot again.
func TestStartSlotReleasedDuringPull(t *testing.T) {
	tests := map[string]struct {
		pull, other time.Duration // duration of the pull, and of the start of another pod
		fails       bool
		taken       time.Duration // time when the other pod got the slot
		want        []string
	}{
		"image present": {
			taken: 0, want: []string{"0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0"},
		},
		"slow check of a present image": {
			pull: 99 * time.Millisecond, taken: 99 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "99ms CreateContainer main", "99ms StartContainer uid-a-main-0"},
		},
		"pull": {
			pull: 30 * time.Second, other: time.Second, taken: 100 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "30s CreateContainer main", "30s StartContainer uid-a-main-0"},
		},
		"pull, and another pod takes the slot": {
			pull: 30 * time.Second, other: time.Minute, taken: 100 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "1m0.1s CreateContainer main", "1m0.1s StartContainer uid-a-main-0"},
		},
		"failed pull": {
			pull: 30 * time.Second, other: time.Minute, fails: true, taken: 100 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) {
					n.Images = imageFunc(func(_ context.Context, c *corev1.Container) (cri.Image, error) {
						time.Sleep(tt.pull)
						if tt.fails {
							return cri.Image{}, &podstatus.StartError{Reason: "ErrImagePull", Err: errors.New("no such image")}
						}
						return critest.NewImage(c.Image, 0), nil
					})
				}})
				ended := make(chan error, 1)
				go func() { ended <- s.do(t.Context(), s.startOf("main")) }()
				synctest.Wait()
				taken := s.hold(tt.other)
				require.Equal(t, tt.fails, <-ended != nil)
				s.requireCalls(tt.want...)
				require.Equal(t, tt.taken, taken())
			})
		})
	}
}

// A wait for a slot ends when the agent stops.
func TestWaitForStartSlotEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a"), setting{})
		taken := s.hold(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.do(ctx, s.startOf("main")), context.DeadlineExceeded)
		s.requireCalls()
		s.requireEvents()
		taken()
		require.NoError(t, s.do(t.Context(), s.startOf("main")))
	})
}
