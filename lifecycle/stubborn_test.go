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
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A container that cannot be asked to end, as one whose image names no valid signal, is killed in the end. While the
// runtime is away it keeps its grace period.
func TestContainerThatCannotBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		f := &critest.Faults{Runtime: rt}
		var away atomic.Bool
		away.Store(true)
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			switch {
			case away.Load():
				return cri.ErrUnavailable
			case grace > 0:
				return errors.New("no such signal")
			}
			return next.StopContainer(ctx, id, grace)
		}
		n := boot(t, rt, f, lifecycle.Options{})
		n.set(testPod("a"))
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		away.Store(false)
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"a"}, n.left())
	})
}
