// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/device"
)

const gpu, nic = "example.com/gpu", "example.com/nic"

// formatDevices formats the entries of devices, such as "gpu:a@0,1".
func formatDevices(devices []*podresourcesv1.ContainerDevices) string {
	var all []string
	for _, d := range devices {
		text := strings.TrimPrefix(d.GetResourceName(), "example.com/") + ":" + strings.Join(d.GetDeviceIds(), "+")
		if d.GetTopology() != nil {
			text += "@" + formatNodes(d.GetTopology())
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func formatNodes(t *podresourcesv1.TopologyInfo) string {
	var all []string
	for _, n := range t.GetNodes() {
		all = append(all, fmt.Sprint(n.GetID()))
	}
	return strings.Join(all, ",")
}

// formatPod formats a pod, such as "default/p main[gpu:a@0] other[]".
func formatPod(p *podresourcesv1.PodResources) string {
	text := p.GetNamespace() + "/" + p.GetName()
	for _, c := range p.GetContainers() {
		text += " " + c.GetName() + "[" + formatDevices(c.GetDevices()) + "]"
	}
	return text
}

func formatList(s *snapshot) (pods []string) {
	for _, p := range s.listPods().GetPodResources() {
		pods = append(pods, formatPod(p))
	}
	return pods
}

// formatAlpha formats the response of v1alpha1 like formatList.
func formatAlpha(s *snapshot) (pods []string) {
	for _, p := range s.listAlpha().GetPodResources() {
		text := p.GetNamespace() + "/" + p.GetName()
		for _, c := range p.GetContainers() {
			var all []string
			for _, d := range c.GetDevices() {
				all = append(all, strings.TrimPrefix(d.GetResourceName(), "example.com/")+":"+strings.Join(d.GetDeviceIds(), "+"))
			}
			text += " " + c.GetName() + "[" + strings.Join(all, " ") + "]"
		}
		pods = append(pods, text)
	}
	return pods
}

// pod returns a pod with the UID of its name.
func pod(name string, containers ...device.Container) device.Pod {
	return device.Pod{UID: name, Namespace: "default", Name: name, Containers: containers}
}

// container returns a container that requests count devices of gpu.
func container(name string, kind device.ContainerKind, count int) device.Container {
	return device.Container{Name: name, Kind: kind, Limits: map[string]int{gpu: count}}
}

func TestListReturnsContainersAndDevices(t *testing.T) {
	main := container("main", device.Regular, 1)
	plain := container("plain", device.Regular, 0)
	onNodes := func(id string, nodes device.Mask) map[string][]device.Device {
		return map[string][]device.Device{gpu: {{ID: id, Nodes: nodes}}}
	}
	for name, test := range map[string]struct {
		snapshot snapshot
		list     []string
		alpha    []string
	}{
		"no pods": {snapshot{}, nil, nil},
		"pod without devices": {
			snapshot{active: []device.Pod{pod("p", plain)}},
			[]string{"default/p plain[]"},
			[]string{"default/p plain[]"},
		},
		"pod without containers": {
			snapshot{active: []device.Pod{pod("p")}},
			[]string{"default/p"},
			[]string{"default/p"},
		},
		"device without NUMA node": {
			snapshot{active: []device.Pod{pod("p", main)}, allocations: Allocations{"p": {"main": onNodes("a", 0)}}},
			[]string{"default/p main[gpu:a]"},
			[]string{"default/p main[gpu:a]"},
		},
		"device of several NUMA nodes has an entry for each": {
			snapshot{active: []device.Pod{pod("p", main)}, allocations: Allocations{"p": {"main": onNodes("a", 1<<0|1<<3|1<<63)}}},
			[]string{"default/p main[gpu:a@0 gpu:a@3 gpu:a@63]"},
			[]string{"default/p main[gpu:a gpu:a gpu:a]"},
		},
		"several devices of several resources": {
			snapshot{active: []device.Pod{pod("p", main, plain)}, allocations: Allocations{"p": {"main": {
				nic: {{ID: "n", Nodes: 1}}, gpu: {{ID: "b", Nodes: 2}, {ID: "a"}, {ID: "c", Nodes: 1}},
			}}}},
			[]string{"default/p main[gpu:b@1 gpu:a gpu:c@0 nic:n@0] plain[]"},
			[]string{"default/p main[gpu:b gpu:a gpu:c nic:n] plain[]"},
		},
		"sidecars first, and no init containers": {
			snapshot{
				active:      []device.Pod{pod("p", container("init", device.Init, 1), container("side", device.Sidecar, 1), main)},
				allocations: Allocations{"p": {"init": onNodes("a", 0), "side": onNodes("b", 0), "main": onNodes("a", 0)}},
			},
			[]string{"default/p side[gpu:b] main[gpu:a]"},
			[]string{"default/p main[gpu:a]"},
		},
		"pod with an incomplete reservation is not listed": {
			snapshot{active: []device.Pod{pod("p", main), pod("q", plain), pod("r", container("init", device.Init, 1), plain)}},
			[]string{"default/q plain[]"},
			[]string{"default/q plain[]"},
		},
		"pod with an incomplete reservation is listed by option": {
			snapshot{active: []device.Pod{pod("p", main)}, unreserved: true},
			[]string{"default/p main[]"},
			[]string{"default/p main[]"},
		},
		"reserved pod whose resources have no plugin": {
			snapshot{active: []device.Pod{pod("p", main)}, allocations: Allocations{"p": nil}},
			[]string{"default/p main[]"},
			[]string{"default/p main[]"},
		},
		"inactive pods are in v1alpha1 only, without devices": {
			snapshot{
				active: []device.Pod{pod("p", plain)}, inactive: []device.Pod{pod("old", container("side", device.Sidecar, 0), main)},
				allocations: Allocations{"old": {"main": onNodes("a", 0)}},
			},
			[]string{"default/p plain[]"},
			[]string{"default/p plain[]", "default/old main[]"},
		},
		"order of the source": {
			snapshot{active: []device.Pod{pod("z", plain), pod("a", plain)}},
			[]string{"default/z plain[]", "default/a plain[]"},
			[]string{"default/z plain[]", "default/a plain[]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.list, formatList(&test.snapshot))
			assert.Equal(t, test.alpha, formatAlpha(&test.snapshot))
		})
	}
}

func TestGetReturnsTheLastListedPodOfAName(t *testing.T) {
	reserved, waiting := pod("p", container("first", device.Regular, 1)), pod("p", container("second", device.Regular, 1))
	waiting.UID = "p2"
	elsewhere := pod("p", container("third", device.Regular, 0))
	elsewhere.Namespace, elsewhere.UID = "kube-system", "p3"
	s := snapshot{
		active:      []device.Pod{reserved, waiting, elsewhere},
		inactive:    []device.Pod{pod("old", container("main", device.Regular, 0))},
		allocations: Allocations{"p": {"first": {gpu: {{ID: "a"}}}}},
	}
	assert.Equal(t, "default/p first[gpu:a]", formatPod(s.findPod("default", "p")), "the second pod has no devices yet")
	s.allocations = Allocations{"p": nil, "p2": {"second": {gpu: {{ID: "b"}}}}}
	assert.Equal(t, "default/p second[gpu:b]", formatPod(s.findPod("default", "p")))
	assert.Equal(t, "kube-system/p third[]", formatPod(s.findPod("kube-system", "p")))
	assert.Nil(t, s.findPod("default", "x"))
	assert.Nil(t, s.findPod("default", "old"), "an inactive pod")
}

// reservations implements CPUs, Memory and Claims for the container main of the pod p.
type reservations struct{}

func (reservations) CPUs(uid, name string) []int64 {
	if uid == "p" && name == "main" {
		return []int64{2, 3}
	}
	return nil
}

func (reservations) PodCPUs(uid string) []int64 {
	if uid == "p" {
		return []int64{2, 3, 4}
	}
	return nil
}

func (reservations) AllocatableCPUs() []int64 { return []int64{1, 2, 3} }

func (reservations) Memory(uid, name string) []device.MemoryBlock {
	if uid == "p" && name == "main" {
		return []device.MemoryBlock{{Type: "memory", Size: 1 << 30, Nodes: 1<<0 | 1<<1}, {Type: "hugepages-2Mi", Size: 2 << 20}}
	}
	return nil
}

func (reservations) PodMemory(uid string) []device.MemoryBlock {
	if uid == "p" {
		return []device.MemoryBlock{{Type: "memory", Size: 3 << 30, Nodes: 1<<0 | 1<<1}}
	}
	return nil
}

func (reservations) AllocatableMemory() []device.MemoryBlock {
	return []device.MemoryBlock{{Type: "memory", Size: 8 << 30, Nodes: 1 << 1}}
}

func (reservations) Claims(uid, name string) []Claim {
	if uid == "p" && name == "main" {
		return []Claim{{Namespace: "default", Name: "c", Devices: []ClaimDevice{
			{Driver: "d.example", Pool: "pool", Device: "x", CDIDevices: []string{"d.example/c=x", "d.example/c=y"}},
			{Driver: "d.example", Pool: "pool", Device: "z", ShareID: "s"},
		}}}
	}
	return nil
}

func TestListReturnsCPUsMemoryAndClaims(t *testing.T) {
	s := snapshot{
		active: []device.Pod{pod("p", container("main", device.Regular, 0), container("other", device.Regular, 0))},
		cpus:   reservations{}, memory: reservations{}, claims: reservations{},
	}
	listed := s.listPods().GetPodResources()[0]
	assert.Equal(t, []int64{2, 3, 4}, listed.GetCpuIds())
	assert.Equal(t, uint64(3<<30), listed.GetMemory()[0].GetSize())
	containers := listed.GetContainers()
	main, other := containers[0], containers[1]
	assert.Equal(t, []int64{2, 3}, main.GetCpuIds())
	var memory []string
	for _, m := range main.GetMemory() {
		memory = append(memory, fmt.Sprintf("%s %d @%s", m.GetMemoryType(), m.GetSize(), formatNodes(m.GetTopology())))
		assert.NotNil(t, m.GetTopology(), "a block always has a topology, as in the kubelet")
	}
	assert.Equal(t, []string{"memory 1073741824 @0,1", "hugepages-2Mi 2097152 @"}, memory)
	var claims []string
	for _, c := range main.GetDynamicResources() {
		for _, d := range c.GetClaimResources() {
			text := fmt.Sprintf("%s/%s %s %s %s", c.GetClaimNamespace(), c.GetClaimName(), d.GetDriverName(), d.GetPoolName(), d.GetDeviceName())
			if d.ShareId != nil {
				text += " share " + d.GetShareId()
			}
			for _, cdi := range d.GetCdiDevices() {
				text += " " + cdi.GetName()
			}
			claims = append(claims, text)
		}
	}
	assert.Equal(t, []string{"default/c d.example pool x d.example/c=x d.example/c=y", "default/c d.example pool z share s"}, claims)
	assert.Empty(t, other.GetCpuIds())
	assert.Empty(t, other.GetMemory())
	assert.Empty(t, other.GetDynamicResources())
}
