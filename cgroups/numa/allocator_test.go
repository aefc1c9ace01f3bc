// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
)

func newAllocator(t *testing.T, opts numa.AllocatorOptions) *numa.Allocator {
	t.Helper()
	a, err := numa.NewAllocator(examplePolicy(), opts)
	require.NoError(t, err)
	return a
}

// take takes the memory of all containers of a pod. After an error, it undoes the reservation.
func take(r *numa.PodReservation, pod *numa.Pod) error {
	for range pod.Containers {
		if err := r.Take(device.Hint{}); err != nil {
			r.Undo(0)
			return err
		}
	}
	return nil
}

// freeOf returns the free memory of each NUMA node in MiB.
func freeOf(a *numa.Allocator) (free []uint64) {
	for _, n := range a.Policy().Nodes(a.State()) {
		free = append(free, n.Memory[numa.Memory].Free>>20)
	}
	return free
}

// A reservation takes no memory of another one, which may not be committed yet. What is undone is free again, to the byte.
func TestReservationsThatOverlap(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	a := newAllocator(t, numa.AllocatorOptions{Record: record})
	first, second, third := examplePod("a", "800Mi"), examplePod("b", "800Mi"), examplePod("c", "800Mi")
	reservations := map[string]*numa.PodReservation{}
	for _, pod := range []*numa.Pod{first, second, third} {
		r, err := a.Begin(pod)
		require.NoError(t, err)
		reservations[pod.UID] = r
	}
	require.NoError(t, take(reservations["a"], first))
	require.NoError(t, take(reservations["b"], second))
	require.Equal(t, []uint64{124, 224}, freeOf(a), "the container uses the memory of the init container")
	refusal, ok := errors.AsType[*numa.Refusal](take(reservations["c"], third))
	require.True(t, ok)
	require.NotEmpty(t, refusal.Lacks)

	reservations["a"].Undo(1)
	require.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 800 << 20}}, a.State().Blocks("a", "init"))
	require.Empty(t, a.State().Blocks("a", "app"))
	require.NoError(t, reservations["a"].Take(device.Hint{}))
	require.NoError(t, reservations["b"].Commit())
	reservations["a"].Undo(0)
	require.Equal(t, []uint64{924, 224}, freeOf(a))
	require.NoError(t, take(reservations["c"], third))
	require.NoError(t, reservations["c"].Commit())
	require.Equal(t, []string{"b", "c"}, newAllocator(t, numa.AllocatorOptions{Record: record}).State().Pods())
}

// A container that takes its memory again after Undo gets the same nodes, also on a group whose free memory is on another node by now. After a change of
// another pod, it takes the memory that is free then.
func TestUndoneReservationTakesTheSameNodes(t *testing.T) {
	a := newAllocator(t, numa.AllocatorOptions{})
	large, err := a.Begin(examplePod("large", "1200Mi"))
	require.NoError(t, err)
	require.NoError(t, large.Take(device.Hint{}))
	require.Equal(t, []uint64{0, 748}, freeOf(a))
	r, err := a.Begin(examplePod("small", "10Mi"))
	require.NoError(t, err)
	for range 3 {
		hints := r.Hints(0)
		require.NoError(t, r.Take(device.Hint{Nodes: 1}))
		require.NoError(t, r.Take(device.Hint{Nodes: 1}))
		require.Equal(t, device.Mask(3), a.State().NodesOf("small", "init"), "node 0 has no memory")
		require.Equal(t, device.Mask(3), a.State().NodesOf("small", "app"))
		require.Equal(t, []uint64{0, 738}, freeOf(a))
		r.Undo(1)
		r.Undo(0)
		require.Equal(t, []uint64{10, 738}, freeOf(a), "the sum is exact")
		require.Equal(t, hints, r.Hints(0))
	}
	require.NoError(t, a.Release("large"))
	require.NoError(t, r.Take(device.Hint{Nodes: 1}))
	require.Equal(t, device.Mask(1), a.State().NodesOf("small", "init"))
	require.Equal(t, []uint64{914, 1024}, freeOf(a))
}

// A pod keeps the memory that it had before a reservation which is undone.
func TestUndoKeepsMemoryOfEarlierReservation(t *testing.T) {
	a := newAllocator(t, numa.AllocatorOptions{})
	for range 2 {
		r, err := a.Begin(examplePod("a", "800Mi"))
		require.NoError(t, err)
		require.NoError(t, take(r, examplePod("a", "800Mi")))
		require.NoError(t, r.Commit())
		r, err = a.Begin(examplePod("a", "800Mi"))
		require.NoError(t, err)
		require.NoError(t, take(r, examplePod("a", "800Mi")))
		r.Undo(0)
		r.Undo(0)
		require.Equal(t, []uint64{124, 1024}, freeOf(a))
	}
	require.NoError(t, a.Start(examplePod("a", "800Mi"), 1))
	require.NoError(t, a.Retain(func(uid string) bool { return len(a.State().Pods()) == 1 && uid == "a" }))
	require.Equal(t, []uint64{124, 1024}, freeOf(a))
	require.NoError(t, a.Retain(func(string) bool { return false }))
	require.Equal(t, []uint64{924, 1024}, freeOf(a))
}

// After an error of the record the pod has its memory, until the caller undoes or releases it. The next call writes the record.
func TestRecordThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	a := newAllocator(t, numa.AllocatorOptions{Record: filepath.Join(dir, "record"), Checkpoint: filepath.Join(dir, numa.CheckpointName), Export: true})
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	pod := examplePod("a", "800Mi")
	r, err := a.Begin(pod)
	require.NoError(t, err)
	require.NoError(t, take(r, pod))
	require.ErrorContains(t, r.Commit(), "write the record of memory on NUMA nodes")
	require.ErrorContains(t, a.Release("b"), "write the record of memory on NUMA nodes", "the record is still older than the state")
	require.Equal(t, []uint64{124, 1024}, freeOf(a))
	require.NoError(t, os.Remove(dir))
	require.NoError(t, r.Commit())
	for _, path := range []string{"record", numa.CheckpointName} {
		require.FileExists(t, filepath.Join(dir, path))
	}
}

// Errors of the files of another agent, and of the export, are reported; they stop no pod.
func TestErrorsThatAreReported(t *testing.T) {
	dir := t.TempDir()
	var reported []error
	opts := numa.AllocatorOptions{
		Record: filepath.Join(dir, "record"), Checkpoint: filepath.Join(dir, numa.CheckpointName), Error: func(err error) { reported = append(reported, err) },
	}
	for _, path := range []string{opts.Record, opts.Checkpoint} {
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	}
	newAllocator(t, opts)
	require.Len(t, reported, 1)
	require.ErrorContains(t, reported[0], "the record is renamed to "+opts.Record+".damaged")
	require.NoError(t, os.Remove(opts.Record))
	a := newAllocator(t, opts)
	require.Len(t, reported, 2)
	require.ErrorContains(t, reported[1], "could not restore state from checkpoint: ")
	require.Empty(t, a.Changes())

	opts.Export = true
	require.NoError(t, os.Remove(opts.Checkpoint))
	require.NoError(t, os.Mkdir(opts.Checkpoint, 0o700))
	newAllocator(t, opts)
	require.Len(t, reported, 3)
	require.ErrorContains(t, reported[2], "write checkpoint")
}

// restoreCopy returns the state of an agent that starts with a copy of the record.
func restoreCopy(policy *numa.Policy, path, copied string) (restored numa.Restored, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(copied, content, 0o600)
	}
	var saved numa.Saved
	if err == nil {
		saved, err = numa.ReadRecord(copied)
	}
	if err == nil {
		restored, err = policy.Restore(saved)
	}
	return restored, err
}

// Pods that come and go at the same time leave nothing behind. A record of each moment has only whole reservations that fit together.
func TestConcurrentReservations(t *testing.T) {
	opts := numa.AllocatorOptions{Record: filepath.Join(t.TempDir(), "record")}
	a := newAllocator(t, opts)
	var pods sync.WaitGroup
	for i := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		pods.Go(func() {
			for round := range 20 {
				pod := examplePod(fmt.Sprint("pod-", i, "-", round), fmt.Sprint(1+random.IntN(600), "Mi"))
				r, err := a.Begin(pod)
				if err == nil {
					err = take(r, pod)
				}
				if err == nil && random.IntN(4) == 0 {
					r.Undo(random.IntN(2))
				}
				if err == nil {
					err = r.Commit()
				}
				if _, refused := errors.AsType[*numa.Refusal](err); err != nil && !refused {
					t.Error(err)
				}
				restored, err := restoreCopy(a.Policy(), opts.Record, fmt.Sprint(opts.Record, i))
				if err != nil || len(restored.Changes) > 0 {
					t.Error(restored.Changes, err)
				}
				if err := a.Release(pod.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pods.Wait()
	require.Equal(t, []uint64{924, 1024}, freeOf(a))
	require.Empty(t, newAllocator(t, opts).State().Pods())
}

func ExampleAllocator() {
	dir, err := os.MkdirTemp("", "numa")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	pod := examplePod("a", "800Mi")
	for range 2 { // the second agent continues with the record
		agent, err := numa.NewAllocator(examplePolicy(), numa.AllocatorOptions{
			Record: filepath.Join(dir, "memory"), Checkpoint: filepath.Join(dir, numa.CheckpointName), Export: true,
			Error: func(err error) { fmt.Println(err) },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		reservation, err := agent.Begin(pod)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("hints", reservation.PodHints(), "changes", agent.Changes())
		for i := range pod.Containers {
			best, _ := device.BestEffort.Merge(reservation.Hints(i), 0b11) // with those of devices and CPUs
			if err := reservation.Take(best); err != nil {
				fmt.Println(err)
				reservation.Undo(0)
				return
			}
		}
		if err := reservation.Commit(); err != nil { // when devices and CPUs are reserved, too
			fmt.Println(err)
			return
		}
		for i := range pod.Containers {
			fmt.Println("cpuset.mems", agent.State().NodesOf("a", pod.Containers[i].Name), agent.Start(pod, i))
		}
		fmt.Println(agent.Policy().Allocatable()[0].Size>>20, "MiB on node 0, pods", agent.State().Pods())
	}
	// Output:
	// hints [[{{0} true} {{1} true} {{0,1} false}]] changes []
	// cpuset.mems {0} <nil>
	// cpuset.mems {0} <nil>
	// 924 MiB on node 0, pods [a]
	// hints [] changes []
	// cpuset.mems {0} <nil>
	// cpuset.mems {0} <nil>
	// 924 MiB on node 0, pods [a]
}

func TestExportNeedsACheckpoint(t *testing.T) {
	_, err := numa.NewAllocator(examplePolicy(), numa.AllocatorOptions{Export: true})
	require.EqualError(t, err, "numa: AllocatorOptions.Export needs AllocatorOptions.Checkpoint, the file to write")
}
