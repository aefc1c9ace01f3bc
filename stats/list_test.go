// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/stats"
)

// The runtime was listed between the start of the sandbox and the start of the container.
func TestRuntimeIsListedAgainForPodWithoutContainer(t *testing.T) {
	h := newTestNode(t)
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid-web", Name: "web", Namespace: "ns"}}
	sandbox, err := h.rt.RunSandbox(t.Context(), config)
	require.NoError(t, err)
	path := cgroups.PodPath("", cgroups.Guaranteed, "uid-web")
	require.NoError(t, h.tree.Apply(t.Context(), path, cgroups.Resources{}))
	h.opts.RuntimePeriod = time.Hour
	c := h.collector()
	s, err := c.Summary(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Pods)
	id, err := h.rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "main", Image: cri.ImageSpec{Image: "i"}}, config)
	require.NoError(t, err)
	require.NoError(t, h.rt.StartContainer(t.Context(), id))
	require.Eventually(t, func() bool {
		s, _ = c.Summary(t.Context())
		return len(s.Pods) == 1
	}, time.Minute, 50*time.Millisecond, "listed again long before RuntimePeriod")
}

// While the runtime hangs, pods started after its last list are measured too. Otherwise an eviction would choose another pod.
func TestUnlistedPodIsMeasuredWhileRuntimeHangs(t *testing.T) {
	h := newTestNode(t)
	h.opts.RuntimePeriod = time.Nanosecond // list at each measurement
	h.pod("old", cgroups.BestEffort, mib)
	c := h.collector()
	_, err := c.Summary(t.Context())
	require.NoError(t, err)
	h.pod("new", cgroups.Burstable, 500*mib)
	h.failCall("List")
	s, err := c.Summary(t.Context())
	require.ErrorContains(t, err, "runtime list: ")
	require.Len(t, s.Pods, 2)
	assert.Equal(t, "old", s.Pods[0].PodRef.Name)
	assert.Equal(t, statsapi.PodReference{UID: "uid-new"}, s.Pods[1].PodRef)
	assert.EqualValues(t, 500*mib, *s.Pods[1].Memory.WorkingSetBytes)
	assert.EqualValues(t, 2, *s.Pods[1].ProcessStats.ProcessCount)
	assert.Empty(t, s.Pods[1].Containers)
	samples, err := c.Samples(t.Context(), cgroups.PartMemory)
	require.Error(t, err)
	assert.False(t, slices.ContainsFunc(samples, func(s stats.Sample) bool { return s.Pod.UID == "uid-new" }), "no sample for a pod with unknown labels")

	h.via.Around = nil
	s, err = c.Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 2)
	assert.Equal(t, "new", s.Pods[0].PodRef.Name)
	assert.Len(t, s.Pods[0].Containers, 1)
}

func TestRuntimeIsListedAgainForUnlistedPod(t *testing.T) {
	h := newTestNode(t)
	h.opts.RuntimePeriod = time.Hour
	c := h.collector()
	s, err := c.Summary(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Pods)
	h.pod("web", cgroups.Guaranteed, mib)
	require.Eventually(t, func() bool {
		s, err = c.Summary(t.Context())
		return err == nil && len(s.Pods) == 1
	}, time.Minute, 50*time.Millisecond, "listed again long before RuntimePeriod")
}

// The runtime was listed and measured before the only container of a pod exited. The kubelet evicts such a pod first: it has no measurement.
func TestRuntimeIsListedAgainForExitedContainer(t *testing.T) {
	for name, seen := range map[string]bool{"after a measurement of its cgroup": true, "before any measurement": false} {
		t.Run(name, func(t *testing.T) {
			h := newTestNode(t)
			h.opts.RuntimePeriod = time.Hour
			path := h.pod("crashed", cgroups.BestEffort, mib)
			h.pod("web", cgroups.BestEffort, mib)
			c := h.collector()
			leaf := h.leafOf(path)
			if !seen {
				require.NoError(t, h.tree.Remove(t.Context(), leaf))
			}
			s, err := c.Summary(t.Context())
			require.NoError(t, err)
			require.Len(t, s.Pods, 2, "the container without a cgroup is measured by the runtime")
			if seen {
				require.NoError(t, h.tree.Remove(t.Context(), leaf))
			}
			require.NoError(t, h.rt.KillWith(h.containerOf("crashed"), critest.Exit{Code: 137}))
			require.Eventually(t, func() bool {
				s, err = c.Summary(t.Context())
				return err == nil && len(s.Pods) == 1
			}, time.Minute, 50*time.Millisecond, "listed again long before RuntimePeriod")
			assert.Equal(t, "web", s.Pods[0].PodRef.Name)
		})
	}
}

// leafOf returns the cgroup of the only container of the pod with this cgroup.
func (h *testNode) leafOf(pod cgroups.Path) cgroups.Path {
	h.t.Helper()
	names, err := h.tree.Children(h.t.Context(), pod)
	require.NoError(h.t, err)
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "cri-containerd-") })
	require.GreaterOrEqual(h.t, i, 0)
	return pod.Join(names[i])
}

// containerOf returns the ID of the only container of a pod.
func (h *testNode) containerOf(pod string) string {
	h.t.Helper()
	snapshot, err := h.rt.List(h.t.Context())
	require.NoError(h.t, err)
	sandbox := slices.IndexFunc(snapshot.Sandboxes, func(s cri.Sandbox) bool { return s.Pod.Name == pod })
	require.GreaterOrEqual(h.t, sandbox, 0)
	i := slices.IndexFunc(snapshot.Containers, func(c cri.Container) bool { return c.SandboxID == snapshot.Sandboxes[sandbox].ID })
	require.GreaterOrEqual(h.t, i, 0)
	return snapshot.Containers[i].ID
}
