// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// runtimeOf is a runtime whose containers have CPUs.
type runtimeOf struct {
	mu      sync.Mutex
	running []cpus.RunningContainer
	cpus    map[string]string
	writes  int
	fail    map[string]error
	hang    bool
	listErr error
}

func (r *runtimeOf) list(context.Context) ([]cpus.RunningContainer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.running), r.listErr
}

func (r *runtimeOf) write(ctx context.Context, id string, set topology.CPUSet) error {
	r.mu.Lock()
	hang := r.hang
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(10 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	if err := r.fail[id]; err != nil {
		return err
	}
	r.cpus[id] = set.String()
	return nil
}

// start starts the container of newPod, with the CPUs of the state.
func (r *runtimeOf) start(uid string, set topology.CPUSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, cpus.RunningContainer{ID: "id-" + uid, PodUID: uid, Container: "app"})
	r.cpus["id-"+uid] = set.String()
}

func (r *runtimeOf) cpusOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cpus[id]
}

func (r *runtimeOf) countWrites() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// startWriter starts a writer on a machine with 8 CPUs.
func startWriter(t *testing.T, r *runtimeOf, policy *cpus.Policy, previous cpus.State) (*cpus.Allocator, *cpus.Writer, func() []string) {
	r.cpus, r.fail = map[string]string{}, map[string]error{}
	var w *cpus.Writer
	a, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{
		Changed: func() { w.Wake() }, Previous: func() (cpus.State, error) { return previous, nil },
	})
	require.NoError(t, err)
	var errs []string
	w, err = cpus.NewWriter(a, cpus.WriterOptions{Running: r.list, Write: r.write, Error: func(err error) { errs = append(errs, err.Error()) }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.ErrorContains(t, w.Run(t.Context()), "second call of Run")
	})
	synctest.Wait()
	return a, w, func() []string { return errs }
}

// After Settle no container of the shared pool runs on CPUs that a container is about to get, even if ten pods start at once. A pass without a change writes
// nothing.
func TestSharedContainersLeaveExclusiveCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy, _ := newPolicy(t, "1 socket 1 node 64 cores")
		r := &runtimeOf{}
		a, w, _ := startWriter(t, r, policy, cpus.State{})
		for i := range 250 {
			r.start(fmt.Sprint("shared-", i), a.State().Shared)
		}
		var starts sync.WaitGroup
		var longest time.Duration
		for i := range 10 {
			starts.Go(func() {
				uid, begin := fmt.Sprint("exclusive-", i), time.Now()
				require.NoError(t, a.Reserve(newPod(uid, 4), nil))
				require.NoError(t, w.Settle(t.Context()))
				set, _ := a.CPUs(uid, "app")
				r.mu.Lock()
				for _, c := range r.running {
					has, err := topology.ParseCPUSet(r.cpus[c.ID])
					require.NoError(t, err)
					require.Zero(t, has.CountCommon(set), "%s runs on %s of %s", c.ID, has, uid)
				}
				longest = max(longest, time.Since(begin))
				r.mu.Unlock()
				r.start(uid, set)
			})
		}
		starts.Wait()
		require.Less(t, longest, 500*time.Millisecond, "two passes of 250 writes, 16 at a time")
		time.Sleep(time.Minute)
		writes := r.countWrites()
		time.Sleep(time.Minute)
		require.Equal(t, writes, r.countWrites(), "a pass that changes nothing")
		for i := range 10 {
			require.NoError(t, a.Release(fmt.Sprint("exclusive-", i)))
		}
		require.NoError(t, w.Settle(t.Context()))
		require.Equal(t, "0-63", r.cpusOf("id-shared-249"))
	})
}

// An error is repeated in the next period, and delays no other container. A write that hangs ends.
func TestWritesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy, _ := newPolicy(t, "1 socket 1 node 8 cores")
		r := &runtimeOf{}
		a, w, errs := startWriter(t, r, policy, cpus.State{})
		r.start("good", a.State().Shared)
		r.start("bad", a.State().Shared)
		r.mu.Lock()
		r.fail["id-bad"] = errors.New("no such cgroup")
		r.mu.Unlock()
		require.NoError(t, a.Reserve(newPod("a", 2), nil))
		require.EqualError(t, w.Settle(t.Context()), "cpus: write CPUs 0,3-7 to container app of pod bad: no such cgroup")
		require.Equal(t, "0,3-7", r.cpusOf("id-good"))
		require.NotEmpty(t, errs())
		r.mu.Lock()
		delete(r.fail, "id-bad")
		r.mu.Unlock()
		time.Sleep(11 * time.Second)
		require.Equal(t, "0,3-7", r.cpusOf("id-bad"))

		r.mu.Lock()
		r.hang = true
		r.mu.Unlock()
		require.NoError(t, a.Release("a"))
		require.ErrorIs(t, w.Settle(t.Context()), context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Settle(ctx), context.DeadlineExceeded)
		r.mu.Lock()
		r.hang, r.listErr = false, errors.New("no runtime")
		r.mu.Unlock()
		require.EqualError(t, w.Settle(t.Context()), "cpus: list the running containers: no runtime")
		r.mu.Lock()
		r.listErr = nil
		r.mu.Unlock()
		require.NoError(t, w.Settle(t.Context()))
		require.Equal(t, "0-7", r.cpusOf("id-bad"))
	})
}

// With the policy none, containers have no cpuset, except while a pod still has CPUs of the policy static.
func TestPolicyNoneWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none, err := cpus.NewPolicy(mustParse(t, "1 socket 1 node 8 cores"), cpus.Config{})
		require.NoError(t, err)
		previous := cpus.State{Assigned: map[string]map[string]topology.CPUSet{"b": {"app": topology.NewCPUSet(1, 2)}}}
		r := &runtimeOf{}
		a, w, _ := startWriter(t, r, none, previous)
		r.start("a", a.State().Shared)
		require.NoError(t, w.Settle(t.Context()))
		require.Equal(t, "0,3-7", r.cpusOf("id-a"))
		require.NoError(t, a.Release("b"))
		require.NoError(t, w.Settle(t.Context()))
		require.Equal(t, "0-7", r.cpusOf("id-a"))
		writes := r.countWrites()
		r.start("c", a.State().Shared)
		require.NoError(t, w.Settle(t.Context()))
		require.Equal(t, writes, r.countWrites())
	})
}

func TestNewWriterNamesTheOption(t *testing.T) {
	policy, _ := newPolicy(t, "1 socket 1 node 8 cores")
	a, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{})
	require.NoError(t, err)
	r := &runtimeOf{}
	_, err = cpus.NewWriter(a, cpus.WriterOptions{Write: r.write})
	require.EqualError(t, err, "cpus: WriterOptions.Running is nil")
	_, err = cpus.NewWriter(a, cpus.WriterOptions{Running: r.list})
	require.EqualError(t, err, "cpus: WriterOptions.Write is nil")
	_, err = cpus.NewWriter(a, cpus.WriterOptions{Running: r.list, Write: r.write, Period: -1})
	require.EqualError(t, err, "cpus: WriterOptions.Period is -1ns: it must not be negative")
}
