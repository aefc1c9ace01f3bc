// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/stats"
)

// huge is a cgroup tree with impossibly large usage and a CPU time that falls with each call.
type huge struct {
	stats.Cgroups
	passes *uint64
}

func (h huge) Sample(_ context.Context, _ cgroups.Path, _ string, _ cgroups.Parts) (s cgroups.Stats, err error) {
	*h.passes++
	s.CPU.Usage = math.MaxUint64 - *h.passes
	s.Memory.Current, s.Memory.Swap, s.Memory.Stat.InactiveFile = math.MaxUint64, math.MaxUint64, 1
	s.Memory.Max, s.Memory.SwapMax = new(int64(5)), new(int64(5))
	s.Pids.Current, s.Pids.Procs = math.MaxUint64, []int{math.MaxInt}
	return s, nil
}

// Values of broken counters, file servers and runtimes stay within their types, and no value is negative.
func TestImpossibleValuesAreSaturated(t *testing.T) {
	h := newTestNode(t)
	h.pod("web", cgroups.Burstable, mib)
	full := stats.Filesystem{CapacityBytes: 1, AvailableBytes: math.MaxUint64, FreeBytes: math.MaxUint64, Inodes: 1, InodesFree: math.MaxUint64}
	h.disks["/var/lib/kubelet"], h.disks["/critest"] = full, full
	h.proc["loadavg"].Data = []byte("0 0 0 1/9223372036854775807 1\n")
	c, err := stats.New(huge{h.tree, new(uint64)}, h.via, h.opts)
	require.NoError(t, err)
	for range 2 {
		s, err := c.Summary(t.Context())
		require.NoError(t, err)
		assert.Zero(t, *s.Node.Memory.AvailableBytes)
		assert.Zero(t, *s.Node.Fs.UsedBytes)
		assert.Zero(t, *s.Node.Fs.InodesUsed)
		assert.Zero(t, *s.Node.Swap.SwapAvailableBytes)
		require.Len(t, s.Pods, 1)
		assert.Zero(t, *s.Pods[0].Memory.AvailableBytes)
		assert.Nil(t, s.Pods[0].CPU.UsageNanoCores, "a falling counter has no rate")
		signals, err := c.Signals(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 0, signals.Memory.Available)
		assert.EqualValues(t, int64(math.MaxInt64), signals.Memory.Capacity)
		assert.EqualValues(t, 20000-int64(math.MaxInt64), signals.PIDs.Available)
		assert.EqualValues(t, int64(math.MaxInt64), signals.NodeFs.Available)
	}
}

// Names from the runtime are ignored unless they are single path elements.
func TestNamesOfRuntimeDoNotLeadOutOfDirectories(t *testing.T) {
	h := newTestNode(t)
	asked := map[string]bool{}
	h.opts.Statfs = func(path string) (stats.Filesystem, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		asked[path] = true
		return stats.Filesystem{CapacityBytes: 1}, nil
	}
	lister := cri.ListerFunc(func(context.Context) (s cri.Snapshot, err error) {
		for _, name := range []string{"../../etc", "..", "", "a/b", strings.Repeat("x", 300)} {
			s.Sandboxes = append(s.Sandboxes, cri.Sandbox{ID: "s" + name, Pod: cri.PodIdentity{Name: name, Namespace: "ns", UID: name}})
			s.Containers = append(s.Containers, cri.Container{ID: "c" + name, SandboxID: "s" + name, Name: name, State: cri.ContainerRunning})
		}
		return s, nil
	})
	c, err := stats.New(h.tree, lister, h.opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(asked) > 0
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	for path := range asked {
		rest, ok := strings.CutPrefix(path, h.opts.LogRoot+"/")
		assert.True(t, ok && !strings.Contains(rest, "/"), path)
	}
}

// Hanging file systems do not delay the remaining ones. The error names the hanging ones.
func TestFilesystemsNamesHangingOnes(t *testing.T) {
	answer := make(chan struct{})
	k, err := stats.New(cgroupstest.New(cgroupstest.Options{}), critest.New(critest.Options{}), stats.Options{
		Timeout: 5 * time.Second, Statfs: func(path string) (stats.Filesystem, error) {
			switch path {
			case "/dead", "/dead2":
				<-answer
			case "/broken":
				return stats.Filesystem{}, errors.New("broken")
			}
			return stats.Filesystem{CapacityBytes: 7}, nil
		},
	})
	require.NoError(t, err)
	for range 3 {
		all, err := k.Filesystems(t.Context(), []string{"/dead", "/good", "/dead2", "/broken"})
		assert.Equal(t, map[string]stats.Filesystem{"/good": {CapacityBytes: 7}}, all)
		for _, path := range []string{"/dead", "/dead2", "/broken"} {
			assert.ErrorContains(t, err, path)
		}
	}
	assert.Len(t, k.HungCalls(), 2, "one call for each file system, in spite of several queries")
	close(answer)
	require.Eventually(t, func() bool {
		all, err := k.Filesystems(t.Context(), []string{"/dead", "/good", "/dead2"})
		return err == nil && len(all) == 3
	}, time.Minute, time.Millisecond)
	all, err := k.Filesystems(t.Context(), nil)
	assert.Empty(t, all)
	assert.NoError(t, err)
}
