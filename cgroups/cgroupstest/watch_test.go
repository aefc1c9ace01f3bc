// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

func TestPressureTriggerFiresAfterStallTime(t *testing.T) {
	// The race detector needs one processor with synctest (golang/go#78156). Other tests run on several processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.New(cgroupstest.Options{})
		require.NoError(t, tree.Apply(t.Context(), "a/b", cgroups.Resources{}))
		some := cgroups.Trigger{File: "memory.pressure", Stall: 100 * time.Millisecond, Window: time.Second}
		full := some
		full.Full = true
		ctx, cancel := context.WithCancel(t.Context())
		var fired []cgroups.Trigger
		ended := make(chan error)
		go func() {
			ended <- tree.Watch(ctx, "a", []cgroups.Trigger{some, full}, func(trigger cgroups.Trigger) { fired = append(fired, trigger) })
		}()
		lose := func(some, full time.Duration) []cgroups.Trigger {
			synctest.Wait()
			fired = nil
			require.NoError(t, tree.SetPressure("a/b", "memory", cgroups.Pressure{
				Some: cgroups.PressureLine{Total: some}, Full: cgroups.PressureLine{Total: full},
			}))
			synctest.Wait()
			return fired
		}
		assert.Empty(t, lose(99*time.Millisecond, 0))
		assert.Equal(t, []cgroups.Trigger{some}, lose(100*time.Millisecond, 50*time.Millisecond), "pressure of a descendant counts for its ancestors")
		assert.Empty(t, lose(199*time.Millisecond, 99*time.Millisecond))
		assert.Equal(t, []cgroups.Trigger{some, full}, lose(time.Second, time.Second))
		require.NoError(t, tree.SetPressure("a", "cpu", cgroups.Pressure{Some: cgroups.PressureLine{Total: time.Hour}}))
		synctest.Wait()
		assert.Len(t, fired, 2, "pressure of another file fires no trigger")
		cancel()
		assert.NoError(t, <-ended)
	})
}

func TestWatchUnsupportedOnV1(t *testing.T) {
	tree := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1})
	err := tree.Watch(t.Context(), "", []cgroups.Trigger{{File: "memory.events"}}, nil)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "watch cgroup /: memory.events: ")
}
