// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// Before Follow a tree treats no cgroup as orphaned.
func TestFollowedTreeKeepsCgroupsUntilPodsAreComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		require.NoError(t, fake.Apply(t.Context(), "kubepods/besteffort/podx", cgroups.Resources{}))
		there := func() bool {
			_, err := fake.Limits(t.Context(), "kubepods/besteffort/podx")
			if !errors.Is(err, fs.ErrNotExist) {
				require.NoError(t, err)
			}
			return err == nil
		}
		tree := start(t, fake, nil, options())
		time.Sleep(time.Hour)
		require.True(t, there())

		pod := newPod("a", list("cpu", "1"), nil)
		mayRun := true
		tree.Follow(func() ([]*corev1.Pod, bool) { return []*corev1.Pod{pod}, true }, func(string) bool { return mayRun })
		synctest.Wait()
		r, err := fake.Limits(t.Context(), "kubepods/burstable")
		require.NoError(t, err)
		require.EqualValues(t, 1024, r.CPUShares, "the requests of a followed pod are in the shares at once")
		time.Sleep(time.Hour)
		require.True(t, there())

		tree.Follow(func() ([]*corev1.Pod, bool) { return nil, true }, func(string) bool { return false })
		time.Sleep(time.Minute)
		require.False(t, there())
	})
}

// Follow does not replace the Pods passed to New.
func TestFollowHasNoEffectIfNewGotPods(t *testing.T) {
	pod := newPod("a", list("cpu", "1"), nil)
	tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), pods(pod), options())
	require.NoError(t, err)
	tree.Follow(func() ([]*corev1.Pod, bool) { panic("asked") }, func(string) bool { panic("asked") })
	require.NoError(t, tree.Setup(t.Context()))
	require.NoError(t, tree.Ensure(t.Context(), pod))
}
