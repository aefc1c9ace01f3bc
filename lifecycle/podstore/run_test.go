// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
)

// A missing call of Run is reported, and a second call is refused.
func TestRunMissingOrCalledTwiceIsReported(t *testing.T) {
	for _, flush := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			reported := make(chan error, 9)
			s := podstore.New(filepath.Join(t.TempDir(), "pods"), podstore.Options{Hooks: podstore.Hooks{
				Error: func(err error, _ time.Duration) { reported <- err },
			}})
			s.Update(lifecycle.PodSet{Source: "file", Pods: newPods("a")})
			if flush {
				require.NoError(t, s.Flush())
			}
			time.Sleep(10 * time.Second)
			if flush {
				require.Empty(t, reported, "a missing Run is not reported after a call of Flush")
			} else {
				require.Len(t, reported, 1)
				require.ErrorIs(t, <-reported, runonce.ErrNotRun)
			}
			go func() { _ = s.Run(t.Context()) }()
			synctest.Wait()
			require.ErrorIs(t, s.Run(t.Context()), runonce.ErrTwice)
		})
	}
}
