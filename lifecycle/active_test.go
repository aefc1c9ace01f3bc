// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A source lists the UID of an orphaned pod that still terminates. Active returns the listed pod, so that admission counts
// it.
func TestActiveReturnsListedPodWhileOrphanTerminates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfterStop(4*time.Second, 0)})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("web"))
		time.Sleep(10 * time.Second)
		n.stop()
		n = startAgent(t, rt, rt, lifecycle.Options{})
		n.set()
		time.Sleep(time.Second)
		n.set(podtest.Pod("web"))
		time.Sleep(time.Second)
		pods, complete := n.reconciler.Active()
		require.True(t, complete)
		require.Len(t, pods, 1)
		require.NotNil(t, pods[0])
		require.Equal(t, "web", pods[0].Name)
	})
}
