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

// A missing Run is reported once. A Run that starts within Wait is not reported.
func TestGuard(t *testing.T) {
	for _, begin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var g runonce.Guard
			var reports atomic.Int32
			require.NoError(t, g.Err(), "without Need there is no error")
			for range 3 {
				g.Need(func() { reports.Add(1) })
			}
			require.ErrorIs(t, g.Err(), runonce.ErrNotRun)
			time.Sleep(runonce.Wait - 1)
			if begin {
				require.NoError(t, g.Begin())
				require.NoError(t, g.Err())
				require.ErrorIs(t, g.Begin(), runonce.ErrTwice)
				time.Sleep(time.Hour)
				require.Zero(t, reports.Load())
				g.End()
				require.ErrorIs(t, g.Err(), runonce.ErrNotRun)
				require.ErrorIs(t, g.Begin(), runonce.ErrTwice, "after End a second Begin fails")
				return
			}
			require.Zero(t, reports.Load())
			time.Sleep(time.Hour)
			require.EqualValues(t, 1, reports.Load())
		})
	}
}

// A component that is used without Run is reported once, by its name, in the log and in the hook. After Spare it is not
// reported.
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
