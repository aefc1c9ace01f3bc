// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cni/netns"
)

// BenchmarkSetupAndTeardown measures the creation and removal of a network namespace with an ADD and a DEL of a bridge, by
// libcni alone and by Pods, in turn. The ratio is that of the medians.
func BenchmarkSetupAndTeardown(b *testing.B) {
	n := newRealNode(b, bridged("1.0.0", range4), "bridge", "host-local")
	p := n.open()
	bare := libcni.NewCNIConfigWithCacheDir(n.opts.PluginDirs, b.TempDir(), nil)
	config, err := libcni.NetworkConfFromBytes(p.Config().Networks[0].Config())
	require.NoError(b, err)
	spaces := netns.New(b.TempDir())
	b.Cleanup(func() { unmountAll(b, spaces.Path("")) })
	libcniAlone := func() {
		path, err := spaces.Create("bare")
		require.NoError(b, err)
		rt := &libcni.RuntimeConf{ContainerID: "bare", NetNS: path, IfName: "eth0"}
		_, err = bare.AddNetworkList(b.Context(), config, rt)
		require.NoError(b, err)
		require.NoError(b, bare.DelNetworkList(b.Context(), config, rt))
		require.NoError(b, spaces.Remove("bare"))
	}
	pods := func() {
		_, err := p.Setup(b.Context(), pod("ours"))
		require.NoError(b, err)
		require.NoError(b, p.Teardown(b.Context(), "ours"))
	}
	var took [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		for turn := range 2 {
			side := (i + turn) % 2 // alternates the order, because the kernel may still be removing the previous namespace
			began := time.Now()
			[]func(){libcniAlone, pods}[side]()
			took[side] = append(took[side], time.Since(began))
		}
	}
	theirs, ours := median(took[0]), median(took[1])
	b.ReportMetric(float64(theirs.Nanoseconds()), "libcni-ns/op")
	b.ReportMetric(float64(ours.Nanoseconds()), "pods-ns/op")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkLoad measures the load of a directory of three files, with which each set-up starts.
func BenchmarkLoad(b *testing.B) {
	d := cni.NewDir("testdata/conf")
	for b.Loop() {
		if c := d.Load(); len(c.Networks) != 3 {
			b.Fatal(c)
		}
	}
}
