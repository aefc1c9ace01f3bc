// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/pleg"
)

// randomRuntime is a runtime that changes randomly, responds late, fails, hangs, and loses events. It records the full
// history of its states.
type randomRuntime struct {
	*fakeRuntime
	t       *testing.T
	rnd     *rand.Rand
	history map[string][]stateSince // by container

	mu        sync.Mutex // guards the fields below
	published map[key]state
}

// stateSince is the state of a container since a time.
type stateSince struct {
	at    time.Time
	state state
}

var podUIDs = []string{"a", "b", "c", "d"}

// TestRandomOperations runs a generator on a runtime with random changes and faults, with every combination of interfaces. The
// events are consistent and finally add up to the state of the runtime. A pod newer than t has each container in a state that it
// had at t or later.
func TestRandomOperations(t *testing.T) {
	for i := range 8 {
		for seed := range uint64(20) {
			inspector, podLister, events := i&1 > 0, i&2 > 0, i&4 > 0
			name := fmt.Sprintf("inspector=%v/podlister=%v/events=%v/%d", inspector, podLister, events, seed)
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &randomRuntime{
						fakeRuntime: newFakeRuntime(), t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
						history: make(map[string][]stateSince), published: make(map[key]state),
					}
					c.late = seed%2 == 0
					c.runOperations(c.withInterfaces(inspector, podLister, events))
				})
			})
		}
	}
}

func (c *randomRuntime) runOperations(l cri.Lister) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	g := pleg.New(l, pleg.Options{Sink: c.checkEvents, Parallel: 2, PodTimeout: 3 * time.Second, ListTimeout: 2 * time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(c.t, g.Run(ctx)) })
	for range 300 {
		c.changeObject()
		c.checkComplete(g)
		switch c.rnd.IntN(6) {
		case 0:
			c.changeFaults()
		case 1:
			g.Relist(c.pickPod())
		case 2:
			g.Reinspect(c.pickPod())
		case 3:
			uid := c.pickPod()
			wg.Go(func() { c.checkNewerThan(ctx, g, uid) })
		}
		time.Sleep(time.Duration(c.rnd.ExpFloat64() * float64(100*time.Millisecond)))
	}
	for _, call := range []string{"List", "ListPod", "SandboxStatus", "ContainerStatus", "StreamEvents"} {
		c.setFault(call, nil)
	}
	c.setStreamError(nil)
	time.Sleep(30 * time.Second)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	want := statesOf(c.snapshot())
	assert.Empty(c.t, cmp.Diff(want, c.published), "applied events equal the states of the runtime")
	var listed cri.Snapshot
	pods, err := g.Pods()
	assert.NoError(c.t, err)
	for _, p := range pods {
		assert.NoError(c.t, g.PodHealthy(p.UID))
		listed.Sandboxes = append(listed.Sandboxes, p.Sandboxes...)
		listed.Containers = append(listed.Containers, p.Containers...)
	}
	assert.Empty(c.t, cmp.Diff(want, statesOf(listed)), "cached states equal the states of the runtime")
	assert.NoError(c.t, g.Healthy())
	cancel()
	wg.Wait()
}

// checkComplete checks that Pods without an error contains each pod that the last full relist must have seen and that still
// exists.
func (c *randomRuntime) checkComplete(g *pleg.Generator) {
	relisted := g.Status().LastRelist
	pods, err := g.Pods()
	if err != nil {
		return
	}
	assert.False(c.t, relisted.IsZero(), "Pods returns an error before the first full relist")
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, h := range c.history {
		last := h[len(h)-1]
		if last.state == gone || !last.at.Before(relisted) {
			continue
		}
		known := slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == id[:1] })
		assert.True(c.t, known, "%s is %q since %v, but its pod is missing in Pods, complete as of %v", id, last.state, last.at, relisted)
	}
}

func (c *randomRuntime) pickPod() string { return podUIDs[c.rnd.IntN(len(podUIDs))] }

// checkEvents applies the events to the last known states. They are the events of Diff without ContainerChanged.
func (c *randomRuntime) checkEvents(events []pleg.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events = slices.DeleteFunc(events, func(e pleg.Event) bool { return e.Type == pleg.PodSync })
	applyEvents(c.t, c.published, events)
}

// changeObject changes a random container or sandbox, may send an event, and records the change in the history.
func (c *randomRuntime) changeObject() {
	uid := c.pickPod()
	id := fmt.Sprintf("%s%d", uid, c.rnd.IntN(3))
	last := stateSince{state: gone}
	if h := c.history[id]; len(h) > 0 {
		last = h[len(h)-1]
	}
	next := map[state]state{gone: runs, runs: dead, dead: gone}[last.state]
	event := map[state]cri.EventType{gone: cri.EventDeleted, runs: cri.EventStarted, dead: cri.EventStopped}[next]
	if next == runs && c.rnd.IntN(5) == 0 {
		next = dead // the object existed unobserved
	}
	c.mu.Lock()
	c.history[id] = append(c.history[id], stateSince{time.Now(), next})
	c.mu.Unlock()
	switch next {
	case gone:
		c.removeObject(id)
	case runs:
		c.putContainer(cri.Container{ID: id, PodUID: uid, State: cri.ContainerRunning})
	case dead:
		c.putContainer(cri.Container{ID: id, PodUID: uid, State: cri.ContainerExited})
	}
	if c.rnd.IntN(4) > 0 {
		e := cri.Event{ID: id, Type: event, Time: time.Now()}
		if c.rnd.IntN(4) > 0 {
			e.Pod.UID = uid
		}
		c.emitEvent(e)
	}
}

// changeFaults makes a random call slow, failing, hanging or normal.
func (c *randomRuntime) changeFaults() {
	call := []string{"List", "ListPod", "SandboxStatus", "ContainerStatus", "StreamEvents"}[c.rnd.IntN(5)]
	switch c.rnd.IntN(6) {
	case 0:
		boom := errors.New("boom")
		if call == "List" && c.rnd.IntN(2) == 0 {
			boom = cri.ErrTooLarge
		}
		c.setFault(call, func(context.Context) error { return boom })
	case 1:
		c.setFault(call, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	case 2:
		d := time.Duration(c.rnd.IntN(300)) * time.Millisecond
		c.setFault(call, func(context.Context) error { time.Sleep(d); return nil })
	case 3:
		c.setStreamError(nil)
	default:
		c.setFault(call, nil)
	}
}

// checkNewerThan waits for a pod newer than now and compares it with the history.
func (c *randomRuntime) checkNewerThan(ctx context.Context, g *pleg.Generator, uid string) {
	than := time.Now()
	p, err := g.NewerThan(ctx, uid, than)
	if err != nil {
		return
	}
	now := statesOf(cri.Snapshot{Containers: p.Containers})
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range 3 {
		id := fmt.Sprintf("%s%d", uid, i)
		got := now[key{uid, id}]
		ok := false
		h := append([]stateSince{{state: gone}}, c.history[id]...)
		for j, m := range h {
			ended := time.Now().Add(time.Hour)
			if j+1 < len(h) {
				ended = h[j+1].at
			}
			ok = ok || m.state == got && !ended.Before(than)
		}
		assert.True(c.t, ok, "%s is %q in a pod newer than %v, but left that state earlier: %v", id, got, than, h)
	}
}

func TestNewPanicsWithoutLister(t *testing.T) {
	assert.PanicsWithValue(t, "pleg.New: argument lister is nil: required, such as a *remote.Client", func() { pleg.New(nil, pleg.Options{}) })
}

func TestNewerThanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pleg.New(newFakeRuntime().withInterfaces(false, false, false), pleg.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := g.NewerThan(ctx, "a", time.Now()) // Run was not called
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "wait for pod a")
	})
}

// Sink and hooks are called with no lock held, so that they may call each non-blocking method.
func TestSinkAndHooksMayCallTheGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRuntime()
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		var g *pleg.Generator
		var seen []string
		callGenerator := func(where string) {
			p, err := g.Get("a")
			require.NoError(t, err)
			assert.Len(t, p.Containers, 1, where)
			assert.NoError(t, g.Healthy(), where)
			assert.NoError(t, g.PodHealthy("a"))
			pods, _ := g.Pods()
			assert.Len(t, pods, 1)
			seen = append(seen, where)
		}
		g = pleg.New(s.withInterfaces(false, true, false), pleg.Options{
			Sink: func([]pleg.Event) { callGenerator("sink"); g.Relist("a") },
			Hooks: pleg.Hooks{
				Relisted:       func(pleg.Relist) { callGenerator("relisted") },
				PodRelisted:    func(pleg.PodRelist) { callGenerator("podRelisted") },
				RunningCounted: func(pleg.RunningCount) { seen = append(seen, "counted") },
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.NoError(t, g.Run(ctx))
		assert.Equal(t, []string{"counted", "relisted", "sink", "podRelisted"}, seen)
	})
}

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := newFakeRuntime()
		s.putSandbox(cri.Sandbox{ID: "s1", Pod: cri.PodIdentity{UID: "a"}})
		s.putSandbox(cri.Sandbox{ID: "s2", Pod: cri.PodIdentity{UID: "a"}})
		s.putSandbox(cri.Sandbox{ID: "s3", Pod: cri.PodIdentity{UID: "b"}, State: cri.SandboxNotReady})
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		s.putContainer(cri.Container{ID: "c2", PodUID: "a", State: cri.ContainerRunning})
		s.setFault("List", func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
		var (
			relists []pleg.Relist
			pods    []pleg.PodRelist
			count   pleg.RunningCount
			stream  []string
		)
		g := pleg.New(s.withInterfaces(false, true, true), pleg.Options{Hooks: pleg.Hooks{
			Relisted:        func(r pleg.Relist) { relists = append(relists, r) },
			PodRelisted:     func(r pleg.PodRelist) { pods = append(pods, r) },
			RunningCounted:  func(c pleg.RunningCount) { count = c },
			StreamConnected: func() { stream = append(stream, "connected") },
			StreamFailed:    func(err error) { stream = append(stream, "failed: "+err.Error()) },
			StreamEvent: func(e cri.Event, latency time.Duration) {
				stream = append(stream, fmt.Sprintf("%s %v after %v", e.ID, e.Type, latency))
			},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, g.Run(ctx)) })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, pleg.RunningCount{Pods: 1, Containers: [4]int{cri.ContainerRunning: 2}}, count)
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerExited})
		s.emitEvent(cri.Event{ID: "c1", Type: cri.EventStopped, Time: time.Now().Add(-7 * time.Millisecond)})
		time.Sleep(200 * time.Millisecond)
		g.Relist("b")
		time.Sleep(200 * time.Millisecond)
		s.setStreamError(nil)
		s.setFault("List", func(context.Context) error { return errors.New("boom") })
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		assert.Equal(t, []string{"connected", "c1 stopped after 7ms", "failed: broken", "connected"}, stream)
		require.Len(t, pods, 1)
		assert.Equal(t, pleg.PodRelist{PodUID: "b", Start: start.Add(2200 * time.Millisecond), ListedAlone: true}, pods[0])
		assert.Equal(t, pleg.Relist{Start: start, Duration: 20 * time.Millisecond}, relists[0])
		assert.Equal(t, pleg.Relist{
			Start: start.Add(500 * time.Millisecond), Interval: 500 * time.Millisecond, Duration: 20 * time.Millisecond,
		}, relists[1])
		assert.Error(t, relists[len(relists)-1].Err)
		assert.Equal(t, 0, count.Containers[cri.ContainerUnknown])
		assert.Equal(t, 1, count.Containers[cri.ContainerRunning], "containers are counted by their current state only")
	})
}

func TestPodError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRuntime()
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		s.setFault("ContainerStatus", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		g := pleg.New(s.withInterfaces(true, false, false), pleg.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, g.Run(ctx)) })
		time.Sleep(5 * time.Second)
		assert.EqualError(t, g.PodHealthy("a"),
			"inspect pod a, since 2000-01-01T00:00:00Z: ContainerStatus c1: no answer")
		time.Sleep(5500 * time.Millisecond)
		err := g.PodHealthy("a")
		assert.EqualError(t, err,
			"inspect pod a, since 2000-01-01T00:00:00Z: ContainerStatus c1: context deadline exceeded")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NoError(t, g.PodHealthy("b"))
		assert.NoError(t, g.Healthy())
		cancel()
		wg.Wait()
	})
}
