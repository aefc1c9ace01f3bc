// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
)

// activePods is the podtree.Pods of a test: any pod may run, and no pod is listed.
type activePods struct{}

func (activePods) Active() ([]*corev1.Pod, bool) { return nil, false }
func (activePods) MayRun(string) bool            { return true }

// startAgentWithTree starts an agent whose pods have cgroups in memory.
func startAgentWithTree(t *testing.T, mode cgroupstest.Mode) (*node, *critest.Runtime) {
	t.Helper()
	rt := critest.New(critest.Options{Usage: func(cri.Container) cri.ContainerStats {
		return cri.ContainerStats{Memory: &cri.MemoryUsage{UsageBytes: new(uint64(1 * mib))}}
	}})
	o := podtree.Options{
		Node:     qos.Node{CgroupV1: mode == cgroupstest.V1},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
	}
	tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{Mode: mode}), activePods{}, o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tree.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree}), rt
}

// A limit above the capacity, or a limit that the kernel rounds, is written once. Otherwise requested and actual limit would
// never be equal, and each sync would resize the pod.
func TestResizeToHugeLimitWrittenOnce(t *testing.T) {
	const (
		most  = "9223372036854775807"
		most1 = "9223372036854775806"
	)
	for name, row := range map[string][2]string{
		"memory, no limit to max":              {"cpu=100m/200m memory=32Mi/", "cpu=100m/200m memory=32Mi/" + most},
		"memory, max to no limit":              {"cpu=100m/200m memory=32Mi/" + most, "cpu=100m/200m memory=32Mi/"},
		"memory, limit to max":                 {"cpu=100m/200m memory=32Mi/64Mi", "cpu=100m/200m memory=32Mi/" + most},
		"memory, max to limit":                 {"cpu=100m/200m memory=32Mi/" + most, "cpu=100m/200m memory=32Mi/64Mi"},
		"memory, max to one byte less":         {"cpu=100m/200m memory=32Mi/" + most, "cpu=100m/200m memory=32Mi/" + most1},
		"memory, less than a page":             {"cpu=100m/200m memory=32Mi/67108864", "cpu=100m/200m memory=32Mi/67108865"},
		"memory, request":                      {"cpu=100m/200m memory=32Mi/" + most, "cpu=100m/200m memory=" + most + "/" + most},
		"CPU, no limit to max":                 {"cpu=100m/ memory=32Mi/64Mi", "cpu=100m/" + most + "m memory=32Mi/64Mi"},
		"CPU, max to no limit":                 {"cpu=100m/" + most + "m memory=32Mi/64Mi", "cpu=100m/ memory=32Mi/64Mi"},
		"CPU, limit to max":                    {"cpu=100m/200m memory=32Mi/64Mi", "cpu=100m/" + most + "m memory=32Mi/64Mi"},
		"CPU, limit to overflow":               {"cpu=100m/200m memory=32Mi/64Mi", "cpu=100m/" + most + " memory=32Mi/64Mi"},
		"CPU, no limit to overflow":            {"cpu=100m/ memory=32Mi/64Mi", "cpu=100m/" + most + " memory=32Mi/64Mi"},
		"CPU, request":                         {"cpu=100m/ memory=32Mi/64Mi", "cpu=" + most + "m/ memory=32Mi/64Mi"},
		"both, no limit to max":                {"cpu=100m/ memory=32Mi/", "cpu=100m/" + most + "m memory=32Mi/" + most},
		"both, max to no limit":                {"cpu=100m/" + most + "m memory=32Mi/" + most, "cpu=100m/ memory=32Mi/"},
		"CPU request above the largest shares": {"cpu=256/ memory=32Mi/", "cpu=300/ memory=32Mi/"},
		"CPU limit below the smallest quota":   {"cpu=1m/1m memory=32Mi/", "cpu=1m/2m memory=32Mi/"},
	} {
		for mode, cgroup := range map[string]cgroupstest.Mode{"v1": cgroupstest.V1, "v2": cgroupstest.V2} {
			t.Run(name+", "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, rt := startAgentWithTree(t, cgroup)
					n.set(sizedPod(t, 1, row[0]))
					time.Sleep(time.Second)
					before := len(rt.Calls())
					n.set(sizedPod(t, 2, row[1]))
					time.Sleep(time.Minute)
					assert.Empty(t, n.errors())
					assert.LessOrEqual(t, ops(rt, "UpdateContainerResources"), 2, "memory and CPU are updated once each")
					assert.Less(t, len(rt.Calls())-before, 100, "the resize does not loop, including lists")
					assert.NotContains(t, resizeOf(n.status("a")), "PodResize", "the resize is complete")
					sized := sizedPod(t, 2, row[1])
					assert.Equal(t, podtest.FormatRequirements(&sized.Spec.Containers[0].Resources), resizeOf(n.status("a")))
				})
			})
		}
	}
}

// ineffectiveCgroups are cgroups whose Resize succeeds without an effect on containers.
type ineffectiveCgroups struct{ sizedCgroups }

func (c *ineffectiveCgroups) Resize(ctx context.Context, pod *corev1.Pod, _ []cgroups.ContainerResize, rt cgroups.Resizer) error {
	return c.sizedCgroups.Resize(ctx, pod, nil, rt)
}

// A resize that succeeds without an effect is retried with a back-off, and reported.
func TestResizeWithoutEffectBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &ineffectiveCgroups{sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 1, "cpu=250m/500m"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=500m/1"))
		time.Sleep(time.Minute)
		calls := len(tree.takeCalls())
		assert.GreaterOrEqual(t, calls, 4, "the resize is retried")
		assert.LessOrEqual(t, calls, 10, "the back-off doubles from 1 s to 10 s")
		assert.Equal(t, "cpu=250m/500m, PodResizeInProgress Error: resize container main: the runtime did not get "+
			"cpu=500/1000 memory=0/0", resizeOf(n.status("a")))
		assert.Contains(t, n.errors(), "resize container main: the runtime did not get cpu=500/1000 memory=0/0")
	})
}

// A container with resize policy RestartContainer is not restarted repeatedly if the runtime reports resources that it has
// rounded or that a plugin has changed.
func TestContainerWithAdjustedResourcesKeepsRunning(t *testing.T) {
	for name, adjust := range map[string]func(*cri.Resources){
		"a plugin":      func(r *cri.Resources) { r.CPUShares, r.CPUQuota = 500, 12345 },
		"whole pages":   func(r *cri.Resources) { r.MemoryLimit -= r.MemoryLimit % 4096 },
		"limit removed": func(r *cri.Resources) { r.MemoryLimit = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				via := &adjustingRuntime{Runtime: rt, adjust: adjust}
				n := startAgent(t, rt, via, lifecycle.Options{})
				n.set(sizedPod(t, 1, "cpu=250m/500m memory=32Mi/67108865", corev1.ResourceCPU, corev1.ResourceMemory))
				time.Sleep(10 * time.Minute)
				assert.Equal(t, 1, ops(rt, "CreateContainer"))
				assert.Zero(t, ops(rt, "UpdateContainerResources"))
				assert.Empty(t, n.errors())
			})
		})
	}
}

// adjustingRuntime is a runtime that changes the resources of created containers.
type adjustingRuntime struct {
	*critest.Runtime
	adjust func(*cri.Resources)
}

func (a *adjustingRuntime) CreateContainer(
	ctx context.Context, sandbox string, c *cri.ContainerConfig, s *cri.SandboxConfig,
) (string, error) {
	adjusted := *c
	adjusted.Resources = new(*c.Resources)
	a.adjust(adjusted.Resources)
	return a.Runtime.CreateContainer(ctx, sandbox, &adjusted, s)
}
