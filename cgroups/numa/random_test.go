// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

const mib = 1 << 20

// randomNode is a node whose pods come and go at random, and whose agent is killed before or after it writes its record.
type randomNode struct {
	t       *testing.T
	random  *rand.Rand
	machine topology.Machine
	policy  *numa.Policy
	state   numa.State
	record  string
	pods    []numa.Pod // admitted
	changed bool       // the machine has less memory or fewer nodes than at an admission
	next    int        // number of the next pod
}

func newRandomNode(t *testing.T, seed uint64) *randomNode {
	n := &randomNode{t: t, random: rand.New(rand.NewPCG(seed, 0)), record: filepath.Join(t.TempDir(), "record")}
	for id := range 1 + n.random.IntN(4) {
		n.machine.Nodes = append(n.machine.Nodes, topology.Node{
			ID: id, Memory: uint64(20+n.random.IntN(30)) * mib, HugePages: []topology.HugePages{{Size: 2 * mib, Count: uint64(n.random.IntN(5))}},
		})
	}
	n.policy = n.newPolicy()
	require.NoError(t, numa.WriteRecord(n.record, n.policy.Save(n.state)))
	return n
}

func (n *randomNode) newPolicy() *numa.Policy {
	reserved := resource.MustParse("1Mi")
	policy, err := numa.NewPolicy(&n.machine, numa.Config{
		Policy: numa.PolicyStatic, HardEviction: reserved, PodLevel: n.random.IntN(4) > 0,
		ReservedMemory: []numa.Reservation{{Node: 0, Limits: map[string]resource.Quantity{numa.Memory: reserved}}},
	})
	require.NoError(n.t, err)
	return policy
}

// step executes one random operation.
func (n *randomNode) step() {
	switch n.random.IntN(10) {
	case 0, 1, 2, 3, 4:
		n.admit()
	case 5, 6, 7:
		if len(n.pods) > 0 {
			n.remove(n.random.IntN(len(n.pods)))
		}
	case 8:
		if len(n.pods) > 0 {
			pod := &n.pods[n.random.IntN(len(n.pods))]
			n.save(n.policy.Start(n.state, pod, len(pod.Containers)-1))
		}
	case 9:
		n.restart()
	}
	n.check()
}

// save writes the record of the next state. The agent is killed before or after one of eight writes; save reports whether the record is written.
func (n *randomNode) save(next numa.State) bool {
	kill := n.random.IntN(8)
	if kill == 0 {
		n.restart()
		return false
	}
	require.NoError(n.t, numa.WriteRecord(n.record, n.policy.Save(next)))
	n.state = next
	if kill == 1 {
		n.restart()
	}
	return true
}

func (n *randomNode) admit() {
	pod := n.makePod()
	next := n.state
	if n.policy.IsPodLevel(&pod) {
		n.admitWhole(pod)
		return
	}
	if pod.PodLevel {
		return // its containers have no memory of their own
	}
	for i := range pod.Containers {
		hints := n.policy.Hints(next, &pod, i)
		if n.random.IntN(3) == 0 {
			hints = append(hints, []device.Hint{{Nodes: n.randomMask(), Preferred: n.random.IntN(2) == 0}})
		}
		best, admitted := device.Policy(n.random.IntN(4)).Merge(hints, n.mask())
		if !admitted {
			return
		}
		var err error
		if next, err = n.policy.Reserve(next, &pod, i, best); err != nil {
			var refusal *numa.Refusal
			require.ErrorAs(n.t, err, &refusal)
			return
		}
	}
	n.add(pod, next)
}

// admitWhole admits a pod whose memory is reserved as a whole.
func (n *randomNode) admitWhole(pod numa.Pod) {
	best, admitted := device.Policy(n.random.IntN(4)).Merge(n.policy.PodHints(n.state, &pod), n.mask())
	if !admitted {
		return
	}
	next, err := n.policy.ReservePod(n.state, &pod, best)
	if err != nil {
		var refusal *numa.Refusal
		require.ErrorAs(n.t, err, &refusal)
		return
	}
	n.add(pod, next)
}

// add adds a pod to those that are admitted, unless the agent is killed before it has written the state.
func (n *randomNode) add(pod numa.Pod, next numa.State) {
	n.pods = append(n.pods, pod)
	if !n.save(next) {
		n.pods = slices.DeleteFunc(n.pods, func(p numa.Pod) bool { return p.UID == pod.UID })
	}
}

func (n *randomNode) makePod() numa.Pod {
	n.next++
	pod := numa.Pod{UID: fmt.Sprint("u", n.next), Guaranteed: true}
	for i := range 1 + n.random.IntN(4) {
		c := numa.Container{Name: fmt.Sprint("c", i), Kind: device.ContainerKind(n.random.IntN(3)), Requests: map[string]uint64{numa.Memory: uint64(n.random.IntN(12*mib) + n.random.IntN(2)*12*mib)}}
		if n.random.IntN(4) == 0 {
			c.Requests["hugepages-2Mi"] = uint64(2*n.random.IntN(4)) * mib
		}
		pod.Containers = append(pod.Containers, c)
	}
	slices.SortStableFunc(pod.Containers, func(a, b numa.Container) int { // init containers and sidecars first
		return min(int(b.Kind), 1) - min(int(a.Kind), 1)
	})
	if n.random.IntN(3) == 0 {
		pod.PodLevel, pod.Requests = true, map[string]uint64{numa.Memory: mib}
		for i := range pod.Containers {
			c := &pod.Containers[i]
			c.Guaranteed = n.random.IntN(3) > 0
			for name, size := range c.Requests {
				pod.Requests[name] += size
			}
		}
	}
	return pod
}

func (n *randomNode) mask() device.Mask { return 1<<len(n.machine.Nodes) - 1 }

func (n *randomNode) randomMask() device.Mask {
	return 1 + device.Mask(n.random.IntN(int(n.mask())))
}

func (n *randomNode) remove(at int) {
	if n.save(n.policy.Release(n.state, n.pods[at].UID)) {
		n.pods = slices.Delete(n.pods, at, at+1)
	}
}

// restart reads the record, on a machine that has changed one time of four. All pods run, and none is refused.
func (n *randomNode) restart() {
	if n.random.IntN(4) == 0 {
		node := &n.machine.Nodes[n.random.IntN(len(n.machine.Nodes))]
		node.Memory = uint64(20+n.random.IntN(30)) * mib
		n.changed = len(n.pods) > 0
	}
	n.policy = n.newPolicy()
	saved, err := numa.ReadRecord(n.record)
	require.NoError(n.t, err)
	restored, err := n.policy.Restore(saved)
	require.NoError(n.t, err)
	n.state = restored.State
	for i := range n.pods {
		pod := n.pods[i]
		pod.Running = true
		if n.policy.IsPodLevel(&pod) {
			n.state, err = n.policy.ReservePod(n.state, &pod, device.Hint{})
			require.NoError(n.t, err)
		}
		for c := range pod.Containers {
			n.state, err = n.policy.Reserve(n.state, &pod, c, device.Hint{})
			require.NoError(n.t, err)
		}
	}
}

// check compares the use of the nodes with the blocks of the containers.
func (n *randomNode) check() {
	n.changed = n.changed && len(n.pods) > 0
	nodes, pods := n.policy.Nodes(n.state), n.policy.Save(n.state).Pods
	var blocks []numa.Block
	for _, containers := range pods {
		if whole, ok := containers[numa.WholePod]; ok {
			blocks = append(blocks, whole...)
			continue
		}
		for _, list := range containers {
			blocks = append(blocks, list...)
		}
	}
	inUse, reserved := map[string]uint64{}, map[string]uint64{}
	for _, b := range blocks {
		inUse[b.Type] += b.Size
	}
	for _, node := range nodes {
		count := 0
		for _, b := range blocks {
			if b.Nodes.Has(node.ID) {
				count++
			}
		}
		require.Equal(n.t, count, node.Assignments)
		for name, a := range node.Memory {
			require.LessOrEqual(n.t, a.Free, a.Allocatable)
			require.Equal(n.t, a.Allocatable, a.Free+a.Reserved)
			reserved[name] += a.Reserved
		}
	}
	for name, sum := range reserved {
		if n.changed {
			require.LessOrEqual(n.t, sum, inUse[name]) // memory that the machine lacks by now is in use, too
			continue
		}
		require.Equal(n.t, inUse[name], sum, "%s: %v", name, pods)
	}
	for _, pod := range n.pods {
		for _, c := range pod.Containers {
			require.NotNil(n.t, n.state.Blocks(pod.UID, c.Name), "%s %s", pod.UID, c.Name)
			require.True(n.t, pod.PodLevel || len(n.state.Blocks(pod.UID, c.Name)) > 0, "%s %s", pod.UID, c.Name)
		}
	}
	require.Len(n.t, pods, len(n.pods))
}

// In random operations with an agent that is killed before and after writes, no memory is counted twice or lost, no pod loses its memory by a restart, and
// all memory is free in the end. 100,000 operations with NODEAGENT_SOAK=1.
func TestRandomOperationsLoseNoMemory(t *testing.T) {
	const perNode = 250
	nodes := 20
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		nodes = 400
	}
	for seed := range uint64(nodes) {
		n := newRandomNode(t, seed)
		for range perNode {
			n.step()
		}
		for _, uid := range n.state.Pods() {
			n.state = n.policy.Release(n.state, uid)
		}
		require.Equal(t, n.policy.Nodes(numa.State{}), n.policy.Nodes(n.state), "seed %d", seed)
		require.Empty(t, n.state.Pods(), "seed %d", seed)
	}
}
