// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// Random pods, crashes, and changes of the configuration and of the machine: no CPU is exclusive to two pods, none is exclusive and shared, the shared pool
// is not empty, no pod gets a reserved CPU, a running container keeps its CPUs as long as the machine has them, and all CPUs are shared in the end. A crash
// leaves the record as it was before or after the interrupted operation. 100,000 steps with NODEAGENT_SOAK=1.
func TestRandomStepsWithCrashes(t *testing.T) {
	seeds, steps := 20, 150
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		seeds, steps = 200, 500
	}
	for seed := range seeds {
		m := newModel(t, uint64(seed))
		for range steps {
			m.step()
			m.checkInvariants()
		}
		m.finish()
	}
}

// model is a node under random operations.
type model struct {
	t        *testing.T
	random   *rand.Rand
	record   string
	machines []*topology.Machine // the whole one, and with CPUs offline
	machine  *topology.Machine
	agent    *cpus.Allocator
	pods     map[string]*cpus.Pod
	nextPod  int
	describe string // the last operation, for messages
}

func newModel(t *testing.T, seed uint64) *model {
	dir := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "cpus"); err == nil { // files take no time there
		dir = shm
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
	}
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), record: filepath.Join(dir, "record"), pods: map[string]*cpus.Pod{}}
	texts := []string{"1 socket 1 node 4 cores 2 threads", "2 sockets 2 nodes 4 cores 2 threads", "2 sockets 4 nodes 4 cores 2 threads 2 caches"}
	whole, err := topology.Parse(texts[m.random.IntN(len(texts))])
	require.NoError(t, err)
	part := &topology.Machine{CPUs: slices.Clone(whole.CPUs[2:]), Nodes: whole.Nodes}
	m.machines, m.machine = []*topology.Machine{whole, part}, whole
	m.open(m.newPolicy())
	return m
}

// newPolicy returns a random policy of the machine.
func (m *model) newPolicy() *cpus.Policy {
	options := map[string]string{}
	for _, name := range []string{"full-pcpus-only", "strict-cpu-reservation", "distribute-cpus-across-numa", "align-by-socket"} {
		if m.random.IntN(3) == 0 {
			options[name] = "true"
		}
	}
	config := cpus.Config{
		Policy: cpus.PolicyStatic, Options: options, ReservedMillis: int64(1+m.random.IntN(3)) * 1000, Gates: cpus.Gates{AlphaOptions: true},
		Topology: device.Policy(m.random.IntN(3)),
	}
	config.Gates.PodLevel = m.random.IntN(2) == 0
	if m.random.IntN(8) == 0 {
		config = cpus.Config{}
	}
	policy, err := cpus.NewPolicy(m.machine, config)
	require.NoError(m.t, err)
	return policy
}

// open starts a new agent process.
func (m *model) open(policy *cpus.Policy) {
	agent, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{Record: m.record, Error: func(err error) { require.NoError(m.t, err) }})
	require.NoError(m.t, err)
	m.agent = agent
}

// step executes a random operation.
func (m *model) step() {
	switch op := m.random.IntN(20); {
	case op < 9:
		m.reserve(m.randomPod())
	case op < 15:
		uid := m.randomUID()
		m.describe = "release " + uid
		require.NoError(m.t, m.agent.Release(uid))
		delete(m.pods, uid)
	case op < 18:
		m.crash()
	default:
		m.change()
	}
}

func (m *model) randomPod() *cpus.Pod {
	m.nextPod++
	pod := &cpus.Pod{UID: fmt.Sprint("pod", m.nextPod), Guaranteed: m.random.IntN(8) > 0}
	kinds := []device.ContainerKind{device.Init, device.Init, device.Sidecar}
	for i := range m.random.IntN(3) {
		pod.Containers = append(pod.Containers, cpus.Container{Name: fmt.Sprint("i", i), Kind: kinds[m.random.IntN(3)], Millis: m.randomMillis()})
	}
	for i := range 1 + m.random.IntN(2) {
		pod.Containers = append(pod.Containers, cpus.Container{Name: fmt.Sprint("c", i), Millis: m.randomMillis()})
	}
	if m.random.IntN(3) == 0 {
		pod.PodLevel = true
		for i := range pod.Containers {
			c := &pod.Containers[i]
			c.Guaranteed = c.Millis > 0 && m.random.IntN(4) > 0
			pod.Millis += c.Millis
		}
		pod.Millis = (pod.Millis + 999) / 1000 * 1000
	}
	return pod
}

// take reserves the CPUs of a pod, of a pod with pod-level resources as a whole.
func (m *model) take(pod *cpus.Pod, nodes device.Mask) error {
	if !m.agent.Policy().IsPodLevel(pod) {
		return m.agent.Reserve(pod, func(cpus.State, int) (device.Mask, error) { return nodes, nil })
	}
	r, err := m.agent.Begin(pod)
	require.NoError(m.t, err)
	if err := r.TakePod(nodes); err != nil {
		r.Undo(0)
		return err
	}
	return r.Commit()
}

func (m *model) randomMillis() int64 {
	return []int64{0, 500, 1000, 2000, 2000, 2000, 3000, 4000}[m.random.IntN(8)]
}

func (m *model) randomUID() string {
	uids := slices.Sorted(maps.Keys(m.pods))
	if len(uids) == 0 {
		return ""
	}
	return uids[m.random.IntN(len(uids))]
}

// reserve admits a new pod, whose containers take CPUs of any nodes.
func (m *model) reserve(pod *cpus.Pod) {
	before := m.agent.State()
	err := m.take(pod, device.Mask(m.random.IntN(8)))
	m.describe = fmt.Sprintf("reserve %+v: %v", pod, err)
	var refusal *device.Refusal
	if err != nil {
		require.True(m.t, errors.As(err, &refusal), m.describe)
		require.Equal(m.t, before, m.agent.State(), m.describe)
		return
	}
	m.pods[pod.UID] = pod
	policy := m.agent.Policy()
	for _, c := range pod.Containers {
		set, exclusive := m.agent.CPUs(pod.UID, c.Name)
		isEntitled := policy.Name() == cpus.PolicyStatic && pod.Guaranteed && c.Millis > 0 && c.Millis%1000 == 0
		if pod.PodLevel {
			isEntitled = isEntitled && policy.IsPodLevel(pod) && c.Guaranteed
		}
		isWhole := policy.Name() == cpus.PolicyStatic && policy.IsPodLevel(pod) && pod.Guaranteed && pod.Millis > 0
		require.Equal(m.t, isEntitled || isWhole, exclusive, m.describe)
		if isEntitled {
			require.EqualValues(m.t, c.Millis/1000, set.Len(), m.describe)
			require.Zero(m.t, set.CountCommon(policy.Reserved()), m.describe)
		}
	}
}

// crash ends the agent in a reservation or a release. The record is as it was before or after it.
func (m *model) crash() {
	before, err := os.ReadFile(m.record)
	require.NoError(m.t, err)
	pod, released := m.randomPod(), ""
	if m.random.IntN(2) == 0 {
		_ = m.take(pod, 0) // the result is lost
	} else {
		released = m.randomUID()
		require.NoError(m.t, m.agent.Release(released))
	}
	if m.random.IntN(2) == 0 {
		require.NoError(m.t, os.WriteFile(m.record, before, 0o600))
	}
	m.open(m.agent.Policy())
	// The pods still exist: the next process admits the new one again, and releases the old one again.
	if err := m.take(pod, 0); err == nil {
		m.pods[pod.UID] = pod
	} else {
		require.NoError(m.t, m.agent.Release(pod.UID))
	}
	require.NoError(m.t, m.agent.Release(released))
	delete(m.pods, released)
	m.describe = "crash"
}

// change starts an agent with another configuration, or on a machine with other CPUs. All pods are admitted again, and none is refused.
func (m *model) change() {
	before := m.agent.State()
	m.machine = m.machines[m.random.IntN(2)]
	policy := m.newPolicy()
	m.open(policy)
	m.describe = "change"
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		pod := m.pods[uid]
		pod.Running = true
		require.NoError(m.t, m.take(pod, 0), "running pod %s", uid)
		for _, c := range pod.Containers {
			had, wasExclusive := before.CPUs(uid, c.Name)
			has, exclusive := m.agent.CPUs(uid, c.Name)
			if kept := had.Intersect(m.machine.Set()); wasExclusive && !kept.IsEmpty() && exclusive {
				require.LessOrEqual(m.t, kept.Minus(has).Len(), 1, "%s: at most one CPU returns to an empty pool", uid)
			}
		}
	}
}

func (m *model) checkInvariants() {
	s, policy := m.agent.State(), m.agent.Policy()
	var exclusive topology.CPUSet
	for uid, containers := range s.Assigned {
		require.Contains(m.t, m.pods, uid, "%s: a pod that is over has CPUs", m.describe)
		var ofPod topology.CPUSet
		for _, set := range containers {
			ofPod = ofPod.Union(set)
		}
		require.Zero(m.t, exclusive.CountCommon(ofPod), "%s: pod %s has CPUs of another pod", m.describe, uid)
		exclusive = exclusive.Union(ofPod)
		m.checkPod(uid, containers)
	}
	require.Zero(m.t, exclusive.CountCommon(s.Shared), "%s: CPUs %s are shared, too", m.describe, exclusive)
	require.False(m.t, s.Shared.IsEmpty(), m.describe)
	missing := m.machine.Set().Minus(exclusive).Minus(s.Shared)
	require.Zero(m.t, missing.Minus(policy.Reserved()).Len(), "%s: CPUs %s are lost", m.describe, missing)
}

// checkPod checks that only init containers, and containers that share the CPUs of their pod, share their CPUs with later containers.
func (m *model) checkPod(uid string, containers map[string]topology.CPUSet) {
	var kept, shared topology.CPUSet
	whole, isWhole := containers[cpus.WholePod]
	state, pod := m.agent.State(), m.pods[uid]
	for i, c := range pod.Containers {
		set := containers[c.Name]
		if isWhole {
			require.True(m.t, set.Minus(whole).IsEmpty(), "%s: container %s of %s has CPUs %s, the pod %s", m.describe, c.Name, uid, set, whole)
		}
		if state.SharesPod(pod, i) {
			if c.Kind != device.Init {
				shared = shared.Union(set)
			}
			continue
		}
		require.Zero(m.t, kept.CountCommon(set), "%s: CPUs of container %s of %s are those of a running one", m.describe, c.Name, uid)
		if c.Kind != device.Init {
			kept = kept.Union(set)
		}
	}
	require.Zero(m.t, kept.CountCommon(shared), "%s: pod %s: CPUs of a container are shared with others", m.describe, uid)
}

// finish releases all pods: all CPUs are shared, except reserved ones.
func (m *model) finish() {
	require.NoError(m.t, m.agent.Retain(func(string) bool { return false }))
	s := m.agent.State()
	require.Empty(m.t, s.Assigned)
	require.Zero(m.t, m.machine.Set().Minus(s.Shared).Minus(m.agent.Policy().Reserved()).Len())
}
