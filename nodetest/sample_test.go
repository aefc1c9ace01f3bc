// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// A study samples the node once a minute: the quota of the pod throttles it for as long as it runs.
func ExampleNode_Sample() {
	err := nodetest.Simulate(func(ctx context.Context) error {
		n, err := nodetest.Open(ctx, nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 4 << 30}})
		if err != nil {
			return err
		}
		defer n.Close()
		err = n.Add(nodetest.NewPod("web", nodetest.Resources{CPU: "500m", CPULimit: "500m", Memory: "1Gi"}, "cpu=1 memory=ramp(100Mi,400Mi,3m)"))
		for range 3 {
			n.Advance(time.Minute)
			s := n.Sample()
			web := s.Pods[0]
			fmt.Printf("%v %s %s: %d MiB, throttled %v\n", s.At, web.Name, web.Class, web.Usage.WorkingSet>>20, web.Usage.Throttled.Round(5*time.Second))
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1m0.004s default/web Burstable: 199 MiB, throttled 30s
	// 2m0.004s default/web Burstable: 299 MiB, throttled 1m0s
	// 3m0.004s default/web Burstable: 399 MiB, throttled 1m30s
}

func TestSampleHasTheUsageOfNodeAndPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, nodetest.Options{
			Machine: machine.Spec{CPUs: 2, Memory: 4 << 30, Disk: machine.Disk{Bytes: 20 << 30}},
			System:  nodetest.Usage{Memory: nodetest.Constant(256 << 20)},
		})
		require.NoError(t, n.Add(
			nodetest.NewPod("burstable", nodetest.Resources{CPU: "250m", Memory: "100Mi"}, "cpu=1 memory=200Mi cache=50Mi layer=10Mi logs=5Mi tasks=3"),
			nodetest.NewPod("best", nodetest.Resources{}, "cpu=2 memory=64Mi"),
			nodetest.NewPod("guaranteed", nodetest.Resources{CPU: "1", Memory: "1Gi", CPULimit: "1", MemoryLimit: "1Gi"}, "memory=128Mi"),
		))
		n.Advance(100 * time.Second)

		s := n.Sample()

		require.Len(t, s.Pods, 3)
		best, burstable, guaranteed := s.Pods[0], s.Pods[1], s.Pods[2]
		assert.Equal(t, []string{"default/best", "default/burstable", "default/guaranteed"}, []string{best.Name, burstable.Name, guaranteed.Name})
		assert.Equal(t, []corev1.PodQOSClass{"BestEffort", "Burstable", "Guaranteed"}, []corev1.PodQOSClass{best.Class, burstable.Class, guaranteed.Class})
		for _, p := range s.Pods {
			assert.Equal(t, corev1.PodRunning, p.Phase, p.Name)
			assert.True(t, p.Ready, p.Name)
		}
		assert.Equal(t, n.Age(), s.At)
		assert.Equal(t, 2, s.CPUs)
		assert.EqualValues(t, 4<<30, s.Memory)
		assert.EqualValues(t, s.Memory-s.Node.WorkingSet, s.MemoryAvailable)
		assert.EqualValues(t, (256+200+64+128)<<20, s.Node.Anon)
		assert.EqualValues(t, 15<<20, s.Node.Disk)
		assert.EqualValues(t, 20<<30-15<<20, s.DiskAvailable)

		assert.EqualValues(t, 200<<20, burstable.Usage.Anon)
		assert.EqualValues(t, 50<<20, burstable.Usage.Cache)
		assert.EqualValues(t, 15<<20, burstable.Usage.Disk)
		assert.EqualValues(t, 3, burstable.Usage.Tasks)
		assert.InDelta(t, 0.25, burstable.CPURequest, 0)
		assert.EqualValues(t, 100<<20, burstable.MemoryRequest)
		assert.Zero(t, burstable.CPULimit)
		assert.Zero(t, burstable.MemoryLimit)
		assert.InDelta(t, 1, guaranteed.CPULimit, 0)
		assert.EqualValues(t, 1<<30, guaranteed.MemoryLimit)
		assert.InDelta(t, 100, burstable.Usage.CPU.Seconds(), 5, "the request entitles the pod to one of two CPUs")
		assert.InDelta(t, 200, s.Node.CPU.Seconds(), 5)
		assert.Greater(t, best.Usage.CPUPressure, 50*time.Second, "the pod without a request waits for the CPUs")
	})
}

func TestSampleOfAThrottledPodHasItsPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, nodetest.Options{})
		require.NoError(t, n.Add(nodetest.NewPod("slow", nodetest.Resources{}, "cpu=1 memory=ramp(0,1Gi,1m)")))
		n.Advance(2 * time.Second)
		path := cgroups.PodPath("", cgroups.BestEffort, "slow")
		tree := n.Machine().Cgroups()
		containers, err := tree.Children(t.Context(), path)
		require.NoError(t, err)
		require.Len(t, containers, 1)
		assert.Zero(t, n.Sample().Pods[0].MemoryHigh, "no cgroup has a memory.high")

		require.NoError(t, tree.Apply(t.Context(), path.Join(containers[0]), cgroups.Resources{MemoryHigh: new(int64(256 << 20))}))
		require.NoError(t, tree.Apply(t.Context(), path, cgroups.Resources{MemoryHigh: new(int64(512 << 20)), CPUQuota: 50_000}))
		require.NoError(t, tree.Apply(t.Context(), path.Join(containers[0]), cgroups.Resources{CPUQuota: 50_000}))
		n.Advance(2 * time.Minute)

		slow := n.Sample().Pods[0]
		assert.EqualValues(t, 256<<20, slow.MemoryHigh, "the lower limit applies")
		assert.Greater(t, slow.Usage.MemoryPressure, 30*time.Second, "the kernel delays the pod above memory.high")
		assert.Less(t, slow.Usage.WorkingSet, int64(512<<20))
		assert.Greater(t, slow.Usage.Throttled, 50*time.Second)
	})
}

func TestSampleOfAPodWithoutCgroupIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, nodetest.Options{Machine: machine.Spec{Memory: 1 << 30}})
		require.NoError(t, n.Add(nodetest.NewPod("leak", nodetest.Resources{}, "memory=ramp(0,2Gi,1m)")))
		n.Advance(3 * time.Minute)

		leak := n.Sample().Pods[0]

		require.Equal(t, []string{"default/leak"}, n.Log().Evicted())
		assert.Equal(t, corev1.PodFailed, leak.Phase)
		assert.False(t, leak.Ready)
		assert.Zero(t, leak.Usage)
		require.NoError(t, n.Delete("leak"))
		n.Advance(time.Minute)
		assert.Empty(t, n.Sample().Pods)
	})
}
