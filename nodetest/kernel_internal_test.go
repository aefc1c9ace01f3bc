// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// The kernel of an idle node sleeps. It wakes up when a process with a curve starts, and evaluates at the same times as if it had never slept.
func TestKernelSleepsWhileItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := newKernel(machine.Spec{}, time.Now, time.Second, func(cgroupstest.KilledProc) {})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.run(ctx)
		evaluated := func() time.Duration {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.evaluated.Sub(k.begin)
		}
		start := func(name string, usage *Usage) {
			require.NoError(t, k.startProcess(ctx, "", machine.Process{Cgroup: cgroups.Path(name), Name: name}, cgroups.Resources{}, usage))
		}
		start("idle", &Usage{})
		time.Sleep(time.Hour + 300*time.Millisecond)
		assert.Equal(t, time.Second, evaluated(), "asleep since the first interval")

		start("busy", &Usage{Memory: Ramp(0, 100, 100*time.Second)})
		assert.Equal(t, time.Hour, evaluated())
		time.Sleep(10 * time.Second)
		assert.Equal(t, time.Hour+10*time.Second, evaluated())

		k.endProcess(ctx, "busy", "busy")
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour+11*time.Second, evaluated(), "asleep again")
		k.keepAwake()
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour+time.Minute+70*time.Second, evaluated(), "awake for a caller who has the machine")
	})
}
