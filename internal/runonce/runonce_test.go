// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package runonce_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/runonce"
)

// It keeps a Run that was forgotten from being told more than once, and one that is late from being told at all.
func TestGuard(t *testing.T) {
	for _, begin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var g runonce.Guard
			var told atomic.Int32
			require.NoError(t, g.Err(), "nobody waits")
			for range 3 {
				g.Need(func() { told.Add(1) })
			}
			require.ErrorIs(t, g.Err(), runonce.ErrNotRun)
			time.Sleep(runonce.Wait - 1)
			if begin {
				require.NoError(t, g.Begin())
				require.NoError(t, g.Err())
				require.ErrorIs(t, g.Begin(), runonce.ErrTwice)
				time.Sleep(time.Hour)
				require.Zero(t, told.Load())
				g.End()
				require.ErrorIs(t, g.Err(), runonce.ErrNotRun)
				require.ErrorIs(t, g.Begin(), runonce.ErrTwice, "an end does not make it new")
				return
			}
			require.Zero(t, told.Load())
			time.Sleep(time.Hour)
			require.EqualValues(t, 1, told.Load())
		})
	}
}
