// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// randomNode runs random pods on a node, whose agent is killed and started with other policies.
type randomNode struct {
	*node
	random *rand.Rand
	stop   func()
	pods   map[string]*corev1.Pod // that run, by name
	had    map[string]string      // CPUs and NUMA nodes of each, when it was started
	next   int
}

// placeOf returns the exclusive CPUs of a pod and its containers, and the NUMA nodes and size of their memory.
func (n *randomNode) placeOf(name string) string {
	return n.cpusOf(name) + fmt.Sprint(n.placed.Memory(name, "a"), n.placed.Memory(name, "b"), n.placed.PodMemory(name))
}

// cpusOf returns the exclusive CPUs of a pod and its containers.
func (n *randomNode) cpusOf(name string) string {
	return fmt.Sprint(n.placed.CPUs(name, "a"), n.placed.CPUs(name, "b"), n.placed.PodCPUs(name))
}

// nothing is the result of placeOf for a pod that holds nothing.
const nothing = "[] [] [][] [] []"

// restart kills the agent and starts another one. It is often killed after it has reserved the resources of a pod that has not started.
func (n *randomNode) restart() {
	if n.random.IntN(2) == 0 {
		_ = n.placed.Reserve(n.t.Context(), n.newPod())
	}
	n.stop()
	n.policy, n.podScope, n.podLevel = device.Policy(n.random.IntN(4)), n.random.IntN(2) == 0, n.random.IntN(3) > 0
	n.config.Topology = n.policy
	n.config.ReservedMillis = 1000 + 1000*int64(n.random.IntN(2))
	n.machine = fmt.Sprintf("2 sockets 2 nodes 4 cores %d MiB", 1000+n.random.IntN(100))
	n.stop = n.start()
	for _, name := range slices.Sorted(maps.Keys(n.pods)) {
		require.NoError(n.t, n.placed.Reserve(n.t.Context(), n.pods[name]), "a restart refuses no running pod")
		if strings.HasPrefix(n.had[name], "[] [] []") && n.pods[name].Spec.Resources != nil { // it may have CPUs now, by another gate or scope
			n.had[name] = n.cpusOf(name) + strings.TrimPrefix(n.had[name], "[] [] []")
		}
		require.Equal(n.t, n.had[name], n.placeOf(name))
	}
	for _, uid := range n.placedPods() {
		if n.pods[uid] == nil {
			require.NoError(n.t, n.placed.Release(n.t.Context(), uid))
		}
	}
}

// placedPods returns the UIDs of all pods that the test has made and that may have resources.
func (n *randomNode) placedPods() (uids []string) {
	for i := range n.next {
		uids = append(uids, fmt.Sprint("pod-", i))
	}
	return uids
}

// newPod returns a pod with exclusive CPUs or without, and a random amount of memory. A third of the pods have pod-level resources, which two containers
// divide.
func (n *randomNode) newPod() *corev1.Pod {
	cpu, memory := []string{"500m", "1", "2", "3"}[n.random.IntN(4)], 1+n.random.IntN(500)
	pod := newMemoryPod(fmt.Sprint("pod-", n.next), cpu, fmt.Sprint(memory, "Mi"))
	n.next++
	if n.random.IntN(3) > 0 {
		return pod
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "b"})
	limits := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse([]string{"1", "3", "4", "3500m"}[n.random.IntN(4)]), corev1.ResourceMemory: resource.MustParse(fmt.Sprint(memory+n.random.IntN(100), "Mi")),
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: limits, Limits: limits}
	return pod
}

// admit starts a pod, if it is admitted. With the policy single-numa-node its CPUs and its memory are on one NUMA node.
func (n *randomNode) admit() {
	pod := n.newPod()
	err := n.placed.Reserve(n.t.Context(), pod)
	if _, rejected := errors.AsType[*podstatus.Rejection](err); rejected {
		require.Equal(n.t, nothing, n.placeOf(pod.Name), "a rejected pod holds nothing")
		return
	}
	require.NoError(n.t, err)
	mems := n.mem(pod)
	require.True(n.t, mems != "" || pod.Spec.Resources != nil)
	n.pods[pod.Name], n.had[pod.Name] = pod, n.placeOf(pod.Name)
	if n.policy != device.SingleNUMANode || mems == "" {
		return
	}
	require.NotContains(n.t, mems, ",")
	for _, id := range n.placed.CPUs(pod.Name, "a") {
		require.Equal(n.t, mems, fmt.Sprint(id/4), "CPU %d and the memory", id)
	}
}

// check requires that no CPU has two owners, and that containers have no more memory than the NUMA nodes.
func (n *randomNode) check() {
	owners, used := map[int64]string{}, map[device.Mask]uint64{}
	for name := range n.pods {
		ids, blocks := n.placed.PodCPUs(name), n.placed.PodMemory(name)
		for _, container := range []string{"a", "b"} {
			own := n.placed.CPUs(name, container)
			if len(n.placed.PodCPUs(name)) == 0 {
				ids = append(ids, own...)
			}
			require.Subset(n.t, ids, own, "the pod has the CPUs of its containers")
			if len(n.placed.PodMemory(name)) == 0 {
				blocks = append(blocks, n.placed.Memory(name, container)...)
			}
		}
		for _, id := range ids {
			require.Empty(n.t, owners[id], "CPU %d", id)
			owners[id] = name
		}
		for _, b := range blocks {
			used[b.Nodes] += b.Size
		}
	}
	for nodes, size := range used {
		require.LessOrEqual(n.t, size, uint64(1100<<20)*uint64(nodes.Count()))
	}
}

// Random pods are admitted and removed, while the agent is killed and started with other policies and on a changed machine.
func TestRandomPodsAndRestarts(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			n := &randomNode{node: newMemoryNode(t), random: rand.New(rand.NewPCG(seed, 1)), pods: map[string]*corev1.Pod{}, had: map[string]string{}}
			n.stop = n.start()
			for range 100 {
				switch names := slices.Sorted(maps.Keys(n.pods)); {
				case n.random.IntN(8) == 0:
					n.restart()
				case len(names) > 0 && n.random.IntN(3) == 0:
					name := names[n.random.IntN(len(names))]
					n.remove(n.pods[name])
					delete(n.pods, name)
				default:
					n.admit()
				}
				n.check()
			}
			for _, pod := range n.pods {
				n.remove(pod)
			}
			for _, uid := range n.placedPods() {
				require.Equal(t, nothing, n.placeOf(uid), "seed %d", seed)
			}
			whole := newMemoryPod("whole", "6", "1500Mi")
			if n.policy == device.None || n.policy == device.BestEffort {
				require.Equal(t, "0,1", strings.TrimSpace(n.mem(whole)), "seed %d: all is free again", seed)
			}
			n.stop()
		})
	}
}
