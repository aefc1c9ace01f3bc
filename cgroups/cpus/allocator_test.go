// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/device"
)

func newAllocator(t *testing.T, opts cpus.AllocatorOptions) *cpus.Allocator {
	t.Helper()
	policy, _ := newPolicy(t, "1 socket 1 node 8 cores")
	a, err := cpus.NewAllocator(policy, opts)
	require.NoError(t, err)
	return a
}

// cpusOf returns the exclusive CPUs of the container of newPod, or "".
func cpusOf(a *cpus.Allocator, uid string) string {
	set, exclusive := a.CPUs(uid, "app")
	if !exclusive {
		return ""
	}
	return set.String()
}

// A damaged record is renamed and reported, and the agent starts without it.
func TestDamagedRecordIsRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "record")
	var reported []error
	opts := cpus.AllocatorOptions{Record: path, Error: func(err error) { reported = append(reported, err) }}
	require.NoError(t, newAllocator(t, opts).Reserve(newPod("a", 2), nil))
	require.Equal(t, "1-2", cpusOf(newAllocator(t, opts), "a"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, damaged := range [][]byte{nil, data[:len(data)-1], []byte("{}"), append([]byte("x"), data...)} {
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		reported = nil
		require.Empty(t, cpusOf(newAllocator(t, opts), "a"))
		require.Len(t, reported, 1)
		require.ErrorContains(t, reported[0], "is damaged, and renamed to "+path+".damaged: it")
		aside, err := os.ReadFile(path + ".damaged")
		require.NoError(t, err)
		require.Equal(t, string(damaged), string(aside))
	}
}

// A pod whose record cannot be written is an error, and has its CPUs until it is released. The next write has the state.
func TestRecordThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "record")
	exported := 0
	a := newAllocator(t, cpus.AllocatorOptions{Record: path, Export: func(string, cpus.State) error { exported++; return nil }})
	require.NoError(t, os.RemoveAll(dir))
	exported = 0
	require.ErrorContains(t, a.Reserve(newPod("a", 2), nil), "cpus: write the record")
	require.Equal(t, "1-2", cpusOf(a, "a"))
	require.Zero(t, exported, "a kubelet must not know more than the record")
	require.ErrorContains(t, a.Release("b"), "cpus: write the record", "the record is still older than the state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, a.Release("b"))
	require.Equal(t, 1, exported)
	require.Equal(t, "1-2", cpusOf(newAllocator(t, cpus.AllocatorOptions{Record: path}), "a"))
}

// With Kubelet.RefuseChanged, an agent continues with its own record, and does not start with one that does not fit.
func TestRecordWithRefuseChanged(t *testing.T) {
	config := cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000, Kubelet: cpus.Kubelet{RefuseChanged: true}}
	opts := cpus.AllocatorOptions{Record: filepath.Join(t.TempDir(), "record")}
	for _, uid := range []string{"a", "b"} {
		policy, err := cpus.NewPolicy(mustParse(t, "1 socket 1 node 8 cores"), config)
		require.NoError(t, err)
		a, err := cpus.NewAllocator(policy, opts)
		require.NoError(t, err)
		require.NoError(t, a.Reserve(newPod(uid, 2), nil))
	}
	policy, err := cpus.NewPolicy(mustParse(t, "1 socket 1 node 9 cores"), config)
	require.NoError(t, err)
	_, err = cpus.NewAllocator(policy, opts)
	require.EqualError(t, err, `current set of available CPUs "0-8" doesn't match with CPUs in state "0-7"`)
}

// Errors of the export and of the previous state are reported; they stop no pod.
func TestErrorsThatAreReported(t *testing.T) {
	var reported []string
	opts := cpus.AllocatorOptions{
		Previous: func() (cpus.State, error) { return cpus.State{}, errors.New("no permission") },
		Export:   func(string, cpus.State) error { return errors.New("no space") },
		Error:    func(err error) { reported = append(reported, err.Error()) },
	}
	a := newAllocator(t, opts)
	require.NoError(t, a.Reserve(newPod("a", 1), nil))
	require.Equal(t, []string{"cpus: read the state of another agent: no permission", "cpus: export the state: no space", "cpus: export the state: no space"}, reported)
	policy, err := cpus.NewPolicy(mustParse(t, "1 socket 1 node 2 cores"), cpus.Config{Kubelet: cpus.Kubelet{RefuseChanged: true}})
	require.NoError(t, err)
	_, err = cpus.NewAllocator(policy, opts)
	require.EqualError(t, err, "no permission", "a kubelet does not start")
}

// A reservation takes no CPUs of another one, which may not be committed yet. Until then the state does not change.
func TestReservationsThatOverlap(t *testing.T) {
	changed := 0
	a := newAllocator(t, cpus.AllocatorOptions{Changed: func() { changed++ }})
	begin := func(uid string) *cpus.Reservation {
		r, err := a.Begin(newPod(uid, 3))
		require.NoError(t, err)
		return r
	}
	first, second, third := begin("a"), begin("b"), begin("c")
	require.NoError(t, first.Take(0, 0))
	require.NoError(t, second.Take(0, 0))
	var refusal *device.Refusal
	require.ErrorAs(t, third.Take(0, 0), &refusal)
	require.Equal(t, "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=1, which is unexpected", refusal.Message)
	require.Empty(t, third.Hints(0))
	require.Empty(t, cpusOf(a, "a"))
	require.Equal(t, "0-7", a.State().Shared.String())

	require.NoError(t, second.Commit())
	require.NoError(t, second.Commit(), "again")
	require.Equal(t, []string{"", "4-6"}, []string{cpusOf(a, "a"), cpusOf(a, "b")})
	first.Undo(1)
	require.ErrorAs(t, third.Take(0, 0), &refusal, "the first has its CPUs")
	first.Undo(0)
	require.NoError(t, third.Take(0, 0))
	require.NoError(t, third.Commit())
	require.NoError(t, first.Commit(), "it has taken nothing")
	require.Equal(t, []string{"", "4-6", "1-3"}, []string{cpusOf(a, "a"), cpusOf(a, "b"), cpusOf(a, "c")})
	require.Equal(t, 2, changed, "only changes are reported")
}

// Pods that come and go at the same time never share a CPU.
func TestConcurrentReservations(t *testing.T) {
	a := newAllocator(t, cpus.AllocatorOptions{Record: filepath.Join(t.TempDir(), "record")})
	var pods sync.WaitGroup
	for i := range 8 {
		pods.Go(func() {
			for round := range 20 {
				uid := fmt.Sprint("pod-", i, "-", round)
				var refusal *device.Refusal
				if err := a.Reserve(newPod(uid, 1+round%3), nil); err != nil && !errors.As(err, &refusal) {
					t.Error(err)
				}
				if err := a.Release(uid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pods.Wait()
	require.Equal(t, "0-7", a.State().Shared.String())
}

// Pods that cannot be told apart are errors.
func TestInvalidPods(t *testing.T) {
	a := newAllocator(t, cpus.AllocatorOptions{})
	require.EqualError(t, a.Reserve(newPod("", 1), nil), "reserve CPUs: Pod.UID is empty")
	pod := newPod("a", 1)
	pod.Namespace, pod.Name, pod.Containers = "default", "web", append(pod.Containers, pod.Containers[0])
	require.EqualError(t, a.Reserve(pod, nil), `reserve CPUs: pod default/web has two containers of the name "app", or one without name`)
}

// An error of the merge leaves the pod without CPUs.
func TestReserveOfAllContainersOrNone(t *testing.T) {
	a := newAllocator(t, cpus.AllocatorOptions{})
	pod := newPod("a", 2)
	pod.Containers = append(pod.Containers, cpus.Container{Name: "second", Millis: 1000})
	refused := errors.New("refused")
	require.ErrorIs(t, a.Reserve(pod, func(_ cpus.State, i int) (device.Mask, error) {
		if i == 1 {
			return 0, refused
		}
		return 1, nil
	}), refused)
	require.Equal(t, "0-7", a.State().Shared.String())
}
