// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A container that cannot be stopped, for example because its image has an invalid stop signal, is finally killed. Its grace
// period continues while the runtime is unavailable.
func TestUnstoppableContainerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		f := &critest.Faults{Runtime: rt}
		var unavailable atomic.Bool
		unavailable.Store(true)
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			switch {
			case unavailable.Load():
				return cri.ErrUnavailable
			case grace > 0:
				return errors.New("no such signal")
			}
			return next.StopContainer(ctx, id, grace)
		}
		n := startAgent(t, rt, f, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		unavailable.Store(false)
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"a"}, n.removedPods())
	})
}

// If the runtime reports stops and removals that have no effect, the agent retries with a back-off.
func TestFalseStopsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var calls atomic.Int32
		var ignoring atomic.Bool
		ignoring.Store(true)
		f := &critest.Faults{Runtime: rt, Around: func(_ context.Context, op, _ string, call func() error) error {
			if ignoring.Load() && (op == "StopContainer" || op == "StopPodSandbox" || op == "RemovePodSandbox") {
				calls.Add(1)
				return nil
			}
			return call()
		}}
		n := startAgent(t, rt, f, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		require.Positive(t, calls.Load())
		require.LessOrEqual(t, calls.Load(), int32(3*(5+8)), "three calls per attempt: five attempts at once and eight with a back-off")
		require.Empty(t, n.removedPods())
		ignoring.Store(false)
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
	})
}
