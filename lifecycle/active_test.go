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

// An orphaned pod terminates whose UID a source lists by now: the pod that counts for admission is the listed one.
func TestActiveHasThePodWhoseOrphanTerminates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfterStop(4*time.Second, 0)})})
		n := boot(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("web"))
		time.Sleep(10 * time.Second)
		n.stop()
		n = boot(t, rt, rt, lifecycle.Options{})
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
