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

// occupySlot occupies the start slot for another pod, as soon as it is free, for the duration long. taken waits until the slot is
// free again, and returns the time at which it was acquired.
func (s *scene) occupySlot(long time.Duration) (acquiredAt func() time.Duration) {
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
		s.startContainers("side")
		acquiredAt := s.occupySlot(7 * time.Second)
		a := s.startActions("main")
		a.Sandbox, a.SandboxID, a.Kill = nil, "uid-a-0", []plan.Kill{newKill("side", time.Second)}
		require.NoError(t, s.execute(t.Context(), a))
		s.requireCalls("0s StopContainer uid-a-side-0 2s", "7s CreateContainer main", "7s StartContainer uid-a-main-0")
		acquiredAt()
	})
}

// The slot is released after every start, including failed starts.
func TestStartSlotReleasedAfterEachStart(t *testing.T) {
	for _, broken := range []string{"", "RunPodSandbox", "PodSandboxStatus", "CreateContainer main", "StartContainer"} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a"), setting{})
				s.setFault(broken, errors.New("out of order"))
				require.Equal(t, broken != "", s.execute(t.Context(), s.startActions("main")) != nil)
				acquiredAt := s.occupySlot(0)
				require.Zero(t, acquiredAt())
			})
		})
	}
}

// A slow call occupies its slot for ten seconds.
func TestStartSlotReleasedDuringSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "side"), setting{scripts: map[string]critest.Script{"main": {StartAfter: 30 * time.Second}}})
		ended := make(chan error)
		go func() { ended <- s.execute(t.Context(), s.startActions("main", "side")) }()
		synctest.Wait()
		acquiredAt := s.occupySlot(time.Hour)
		require.NoError(t, <-ended)
		s.requireCalls("0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0",
			"30s CreateContainer side", "30s StartContainer uid-a-side-0") // side does not wait for another slot
		require.Equal(t, 10*time.Second, acquiredAt())
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
		s.startContainers("main")
		time.Sleep(time.Minute)
		require.Contains(t, log.String(), "start container")
		require.NotContains(t, log.String(), "slow start")
	})
}

// During a pull another pod can start. The remaining start waits for a slot again.
func TestStartSlotReleasedDuringPull(t *testing.T) {
	tests := map[string]struct {
		pull, other time.Duration // duration of the pull, and of the start of the other pod
		fails       bool
		acquiredAt  time.Duration // time when the other pod acquires the slot
		want        []string
	}{
		"image present": {
			acquiredAt: 0, want: []string{"0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0"},
		},
		"slow check of a present image": {
			pull: 99 * time.Millisecond, acquiredAt: 99 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "99ms CreateContainer main", "99ms StartContainer uid-a-main-0"},
		},
		"pull": {
			pull: 30 * time.Second, other: time.Second, acquiredAt: 100 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "30s CreateContainer main", "30s StartContainer uid-a-main-0"},
		},
		"pull while another pod uses the slot": {
			pull: 30 * time.Second, other: time.Minute, acquiredAt: 100 * time.Millisecond,
			want: []string{"0s RunPodSandbox uid-a", "1m0.1s CreateContainer main", "1m0.1s StartContainer uid-a-main-0"},
		},
		"failed pull": {
			pull: 30 * time.Second, other: time.Minute, fails: true, acquiredAt: 100 * time.Millisecond,
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
				go func() { ended <- s.execute(t.Context(), s.startActions("main")) }()
				synctest.Wait()
				acquiredAt := s.occupySlot(tt.other)
				require.Equal(t, tt.fails, <-ended != nil)
				s.requireCalls(tt.want...)
				require.Equal(t, tt.acquiredAt, acquiredAt())
			})
		})
	}
}

// A wait for a slot ends when the agent stops.
func TestWaitForStartSlotEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a"), setting{})
		acquiredAt := s.occupySlot(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.execute(ctx, s.startActions("main")), context.DeadlineExceeded)
		s.requireCalls()
		s.requireEvents()
		acquiredAt()
		require.NoError(t, s.execute(t.Context(), s.startActions("main")))
	})
}
