// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package runonce_test

import (
	"bytes"
	"log/slog"
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

// A component that is used without Run is reported once, with its name in the log and in the hook; one that needs no Run never is.
func TestRequire(t *testing.T) {
	for _, spared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var g runonce.Guard
			var log bytes.Buffer
			var hooked []error
			for range 2 {
				g.Require("house.Door", slog.New(slog.NewTextHandler(&log, nil)), func(err error) { hooked = append(hooked, err) })
			}
			if spared {
				g.Spare()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if spared {
				require.Empty(t, hooked)
				require.Empty(t, log.String())
				require.NoError(t, g.Err())
				return
			}
			require.Len(t, hooked, 1)
			require.ErrorIs(t, hooked[0], runonce.ErrNotRun)
			require.ErrorContains(t, hooked[0], "house.Door.Run is not running")
			require.Contains(t, log.String(), "house.Door.Run is not running")
		})
	}
}
