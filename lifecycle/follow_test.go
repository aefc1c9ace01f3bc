// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// followers are pod cgroups that implement lifecycle.Follower.
type followers struct {
	podCgroups
	active func() ([]*corev1.Pod, bool)
	mayRun func(uid string) bool
}

func (f *followers) Follow(active func() ([]*corev1.Pod, bool), mayRun func(uid string) bool) {
	f.active, f.mayRun = active, mayRun
}

// New passes the pods of the Reconciler to its cgroups.
func TestNewPassesPodsToFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		groups := &followers{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: groups})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		pods, complete := groups.active()
		require.Len(t, pods, 1)
		require.True(t, complete)
		require.True(t, groups.mayRun("uid-a"))
		require.False(t, groups.mayRun("uid-b"))
	})
}
