// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/pleg"
)

func TestDiffOrder(t *testing.T) {
	box := func(uid, id string, st cri.SandboxState) cri.Sandbox {
		return cri.Sandbox{ID: id, Pod: cri.PodIdentity{UID: uid}, State: st}
	}
	ctr := func(uid, id string, st cri.ContainerState) cri.Container {
		return cri.Container{ID: id, PodUID: uid, State: st}
	}
	prev := cri.Snapshot{
		Sandboxes: []cri.Sandbox{box("b", "s2", cri.SandboxReady), box("a", "s1", cri.SandboxReady)},
		Containers: []cri.Container{
			ctr("b", "c3", cri.ContainerRunning), ctr("a", "c1", cri.ContainerRunning),
			ctr("a", "c2", cri.ContainerUnknown),
		},
	}
	next := cri.Snapshot{
		Sandboxes: []cri.Sandbox{
			box("a", "s9", cri.SandboxReady), box("a", "s1", cri.SandboxNotReady), box("b", "s2", cri.SandboxReady),
		},
		Containers: []cri.Container{
			ctr("a", "c8", cri.ContainerCreated), ctr("a", "c7", cri.ContainerRunning),
			ctr("b", "c3", cri.ContainerRunning), ctr("a", "c1", cri.ContainerExited), ctr("", "c0", cri.ContainerRunning),
		},
	}
	var got []string
	for _, e := range pleg.Diff(prev, next) {
		got = append(got, e.String())
	}
	want := []string{
		"a ContainerDied c1",
		"a ContainerDied c2", "a ContainerRemoved c2",
		"a ContainerDied s1",
		"a ContainerChanged c8", "a ContainerStarted c7",
		"a ContainerStarted s9",
	}
	assert.Empty(t, cmp.Diff(want, got))
}

func TestEventTypeString(t *testing.T) {
	assert.Equal(t, "ContainerRemoved", pleg.ContainerRemoved.String())
	assert.Equal(t, "EventType(77)", pleg.EventType(77).String())
	assert.Equal(t, "a PodSync", pleg.Event{PodUID: "a", Type: pleg.PodSync}.String())
}

// A state that CRI does not define counts as unknown.
func TestDiffTreatsUndefinedStateAsUnknown(t *testing.T) {
	next := cri.Snapshot{
		Sandboxes:  []cri.Sandbox{{ID: "s", Pod: cri.PodIdentity{UID: "a"}, State: 9}},
		Containers: []cri.Container{{ID: "c", PodUID: "a", State: 9}},
	}
	assert.Equal(t, []pleg.Event{
		{PodUID: "a", ID: "c", Type: pleg.ContainerChanged}, {PodUID: "a", ID: "s", Type: pleg.ContainerChanged},
	}, pleg.Diff(cri.Snapshot{}, next))
}

// state is the state of a container or sandbox as far as events show it.
type state string

const (
	gone    state = ""
	runs    state = "runs"
	dead    state = "dead"
	between state = "between"
)

// key identifies a container or sandbox as part of a pod.
type key struct{ uid, id string }

// statesOf returns the states in a snapshot, by the simplest possible code.
func statesOf(s cri.Snapshot) map[key]state {
	m := make(map[key]state)
	seen := make(map[string]bool)
	put := func(uid, id string, st state) {
		if uid != "" && !seen[id] {
			seen[id] = true
			m[key{uid, id}] = st
		}
	}
	for _, c := range s.Containers {
		put(c.PodUID, c.ID, []state{between, runs, dead, between}[c.State])
	}
	for _, sb := range s.Sandboxes {
		put(sb.Pod.UID, sb.ID, []state{runs, dead}[sb.State])
	}
	return m
}

// applyEvents applies events to states, and fails the test if an event contradicts them.
func applyEvents(t *testing.T, m map[key]state, events []pleg.Event) {
	for _, e := range events {
		k := key{e.PodUID, e.ID}
		was := m[k]
		switch e.Type {
		case pleg.ContainerStarted:
			require.NotEqual(t, runs, was, e)
			m[k] = runs
		case pleg.ContainerDied:
			require.NotEqual(t, dead, was, e)
			m[k] = dead
		case pleg.ContainerChanged:
			require.NotEqual(t, between, was, e)
			m[k] = between
		case pleg.ContainerRemoved:
			require.Equal(t, dead, was, e)
			delete(m, k)
		default:
			require.Failf(t, "unexpected event", "%v", e)
		}
	}
}

// FuzzDiff checks that the events, applied to the states of prev, yield the states of next, in any order of next.
func FuzzDiff(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 1, 2, 1, 1, 1}, []byte{0, 1, 0})
	f.Add([]byte{0, 1, 1, 1, 2, 1}, []byte{1, 1, 1, 0, 2, 2, 0, 1, 0})
	f.Add([]byte{8, 3, 0, 9, 3, 1}, []byte{9, 3, 1, 8, 3, 1})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		prev, next := snapshotOf(a), snapshotOf(b)
		m := statesOf(prev)
		events := pleg.Diff(prev, next)
		applyEvents(t, m, events)
		require.Empty(t, cmp.Diff(statesOf(next), m))
		require.True(t, slices.IsSortedFunc(events, func(x, y pleg.Event) int {
			return len(x.PodUID) - len(y.PodUID) // UIDs here are "p" and longer ones
		}))
		require.Empty(t, pleg.Diff(next, next))
		require.Empty(t, pleg.Diff(prev, prev))
	})
}

// snapshotOf decodes three bytes per object: its pod, its ID, its kind and state. IDs may repeat.
func snapshotOf(b []byte) cri.Snapshot {
	var s cri.Snapshot
	for o := range slices.Chunk(b, 3) {
		if len(o) < 3 {
			break
		}
		uid := "pppppppp"[:o[0]%8] // no UID if o[0]%8 is 0
		id := strconv.Itoa(int(o[1] % 16))
		if st := o[2] % 6; st < 4 {
			s.Containers = append(s.Containers, cri.Container{ID: id, PodUID: uid, State: cri.ContainerState(st)})
		} else {
			s.Sandboxes = append(s.Sandboxes, cri.Sandbox{
				ID: id, Pod: cri.PodIdentity{UID: uid}, State: cri.SandboxState(st - 4),
			})
		}
	}
	return s
}

// nodeSnapshot returns a snapshot of n pods with a sandbox and a container each, and one exited container in every fourth pod.
func nodeSnapshot(n int) cri.Snapshot {
	var s cri.Snapshot
	for i := range n {
		uid := "6a0b1c2d-0000-4000-8000-" + strconv.Itoa(100000+i)
		id := "4f1e5b0c9d8a7e6f5a4b3c2d1e0f4f1e5b0c9d8a7e6f5a4b3c2d1e0f00" + strconv.Itoa(100000+i)
		s.Sandboxes = append(s.Sandboxes, cri.Sandbox{ID: id + "s", Pod: cri.PodIdentity{UID: uid, Name: "p"}})
		s.Containers = append(s.Containers, cri.Container{ID: id + "c", PodUID: uid, State: cri.ContainerRunning})
		if i%4 == 0 {
			s.Containers = append(s.Containers, cri.Container{ID: id + "d", PodUID: uid, State: cri.ContainerExited})
		}
	}
	return s
}

// copySnapshot returns a deep copy of the snapshot, as a runtime returns it, shuffled if rnd is not nil.
func copySnapshot(s cri.Snapshot, rnd *rand.Rand) cri.Snapshot {
	s.Sandboxes, s.Containers = slices.Clone(s.Sandboxes), slices.Clone(s.Containers)
	for i := range s.Sandboxes {
		sb := &s.Sandboxes[i]
		sb.ID, sb.Pod.UID = string([]byte(sb.ID)), string([]byte(sb.Pod.UID))
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		c.ID, c.PodUID = string([]byte(c.ID)), string([]byte(c.PodUID))
	}
	if rnd != nil {
		rnd.Shuffle(len(s.Sandboxes), func(i, j int) {
			s.Sandboxes[i], s.Sandboxes[j] = s.Sandboxes[j], s.Sandboxes[i]
		})
		rnd.Shuffle(len(s.Containers), func(i, j int) {
			s.Containers[i], s.Containers[j] = s.Containers[j], s.Containers[i]
		})
	}
	return s
}

func TestDiffOfUnchangedAllocatesNothing(t *testing.T) {
	prev := nodeSnapshot(100)
	next := copySnapshot(prev, nil)
	assert.Zero(t, testing.AllocsPerRun(10, func() { pleg.Diff(prev, next) }))
	assert.Empty(t, pleg.Diff(prev, copySnapshot(prev, rand.New(rand.NewPCG(1, 2)))))
}

func BenchmarkDiff1000Unchanged(b *testing.B) {
	prev := nodeSnapshot(1000)
	for name, rnd := range map[string]*rand.Rand{"same-order": nil, "other-order": rand.New(rand.NewPCG(1, 2))} {
		b.Run(name, func(b *testing.B) {
			next := copySnapshot(prev, rnd)
			b.ReportAllocs()
			for b.Loop() {
				if pleg.Diff(prev, next) != nil {
					b.Fatal("a difference")
				}
			}
		})
	}
}
