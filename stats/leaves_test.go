// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/stats"
)

// watched is a tree that records the cgroups whose leaves were listed, and the sampled leaves.
type watched struct {
	*cgroupstest.Tree
	listed  []cgroups.Path
	sampled []string
}

func (w *watched) ChildDirs(ctx context.Context, p cgroups.Path) ([]string, error) {
	w.listed = append(w.listed, p)
	return w.Tree.ChildDirs(ctx, p)
}

func (w *watched) Sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts) (cgroups.Stats, error) {
	w.sampled = append(w.sampled, leaf)
	return w.Tree.Sample(ctx, p, leaf, parts)
}

// The leaves of a pod are listed once, and again if a container is missing in the list.
func TestLeavesAreListedAgainForUnknownContainer(t *testing.T) {
	h := newTestNode(t)
	h.opts.RuntimePeriod = time.Nanosecond // list at each measurement
	a, b := h.pod("a", cgroups.Burstable, mib), h.pod("b", cgroups.Guaranteed, 2*mib)
	tree := &watched{Tree: h.tree}
	c, err := stats.New(tree, listerWithStats{h.via, h.via, h.via}, h.opts)
	require.NoError(t, err)
	pass := func(memory map[string]int, listed ...cgroups.Path) {
		t.Helper()
		tree.listed = nil
		samples, err := c.Samples(t.Context(), cgroups.PartMemory)
		require.NoError(t, err)
		got := map[string]int{}
		for _, s := range samples {
			if s.Container.ID != "" {
				got[s.Pod.Name+"/"+s.Container.Name] = int(s.Stats.Memory.Current / mib)
			}
		}
		assert.Equal(t, memory, got)
		slices.Sort(tree.listed)
		assert.Equal(t, listed, tree.listed)
	}
	pass(map[string]int{"a/main": 1, "b/main": 2}, a, b)
	pass(map[string]int{"a/main": 1, "b/main": 2})

	// A container is added.
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid-a", Name: "a", Namespace: "ns"}}
	sandboxes, err := h.rt.List(t.Context())
	require.NoError(t, err)
	at := slices.IndexFunc(sandboxes.Sandboxes, func(s cri.Sandbox) bool { return s.Pod.UID == "uid-a" })
	id, err := h.rt.CreateContainer(t.Context(), sandboxes.Sandboxes[at].ID, &cri.ContainerConfig{Name: "more", Image: cri.ImageSpec{Image: "i"}}, config)
	require.NoError(t, err)
	require.NoError(t, h.rt.StartContainer(t.Context(), id))
	first := a.Join("crio-" + id)
	require.NoError(t, h.tree.Apply(t.Context(), first, cgroups.Resources{}))
	_, err = h.tree.Start(cgroupstest.Proc{Cgroup: first, Memory: 3 * mib})
	require.NoError(t, err)
	pass(map[string]int{"a/main": 1, "a/more": 3, "b/main": 2}, a)
	pass(map[string]int{"a/main": 1, "a/more": 3, "b/main": 2})

	// The cgroup of the container is recreated under another name.
	require.NoError(t, h.tree.Remove(t.Context(), first))
	pass(map[string]int{"a/main": 1, "b/main": 2})
	pass(map[string]int{"a/main": 1, "b/main": 2}, a)
	second := a.Join(id)
	require.NoError(t, h.tree.Apply(t.Context(), second, cgroups.Resources{}))
	_, err = h.tree.Start(cgroupstest.Proc{Cgroup: second, Memory: 5 * mib})
	require.NoError(t, err)
	pass(map[string]int{"a/main": 1, "a/more": 5, "b/main": 2}, a)
	pass(map[string]int{"a/main": 1, "a/more": 5, "b/main": 2})

	// The cgroup of the pod is recreated.
	require.NoError(t, h.tree.Remove(t.Context(), b))
	pass(map[string]int{"a/main": 1, "a/more": 5})
	require.NoError(t, h.tree.Apply(t.Context(), b, cgroups.Resources{}))
	pass(map[string]int{"a/main": 1, "a/more": 5}, b)
}

// The cgroup of a sandbox is read once per measurement, also if only its processes are needed to find the network namespace.
func TestSandboxCgroupIsSampledOncePerMeasurement(t *testing.T) {
	h := newTestNode(t)
	path := h.pod("a", cgroups.Burstable, mib)
	tree := &watched{Tree: h.tree}
	c, err := stats.New(tree, listerWithStats{h.via, h.via, h.via}, h.opts)
	require.NoError(t, err)
	samples, err := c.Samples(t.Context(), cgroups.PartPids)
	require.NoError(t, err)
	at := slices.IndexFunc(samples, func(s stats.Sample) bool { return s.Path == path && s.Leaf != "" && s.Container.ID == "" })
	require.Positive(t, at)
	assert.EqualValues(t, 1, samples[at].Stats.Pids.Current)
	assert.Empty(t, samples[at].Stats.Pids.Procs, "process IDs are returned on request only")
	assert.EqualValues(t, 1000, samples[at-1].Interfaces[0].RxBytes)
	count := func() (n int) {
		for _, leaf := range tree.sampled {
			if leaf == samples[at].Leaf {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 1, count())
	_, err = c.Samples(t.Context(), cgroups.PartPids|cgroups.PartProcs)
	require.NoError(t, err)
	assert.Equal(t, 2, count())
	_, err = c.CPUAndMemory(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, count(), "a summary of CPU and memory does not sample the sandbox")
	_, err = c.Summary(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, count(), "the network needs a process of the sandbox")
}

// In CRI-O a sandbox has neither a process nor a cgroup by default. The network of the pod is read from the first container with a
// process.
func TestNetworkOfPodWithoutInfraProcess(t *testing.T) {
	h := newTestNode(t)
	path := h.pod("a", cgroups.Burstable, mib)
	leaves, err := h.tree.ChildDirs(t.Context(), path)
	require.NoError(t, err)
	for _, leaf := range leaves {
		procs, err := h.tree.Procs(t.Context(), path.Join(leaf))
		require.NoError(t, err)
		if !strings.HasPrefix(leaf, "cri-containerd-") {
			for _, pid := range procs {
				require.NoError(t, h.tree.Exit(pid))
			}
			require.NoError(t, h.tree.Remove(t.Context(), path.Join(leaf)))
			continue
		}
		require.Len(t, procs, 1)
		h.proc[fmt.Sprintf("%d/net/dev", procs[0])] = &fstest.MapFile{Data: []byte(netDev("eth0", 7000))}
	}
	s, err := h.collector().Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	require.NotNil(t, s.Pods[0].Network)
	assert.EqualValues(t, 7000, *s.Pods[0].Network.RxBytes)

	samples, err := h.collector().Samples(t.Context(), cgroups.PartPids)
	require.NoError(t, err)
	at := slices.IndexFunc(samples, func(s stats.Sample) bool { return s.Path == path && s.Leaf == "" })
	require.GreaterOrEqual(t, at, 0)
	assert.EqualValues(t, 7000, samples[at].Interfaces[0].RxBytes)
}
