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

// chaos is a runtime that changes at random, answers late, fails and hangs, and loses events, and beside it what an
// observer who sees everything would know.
type chaos struct {
	*stage
	t       *testing.T
	rnd     *rand.Rand
	history map[string][]moment // by container

	mu   sync.Mutex // guards told
	told map[key]state
}

// moment is the state of a container since a time.
type moment struct {
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
					c := &chaos{
						stage: newStage(), t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
						history: make(map[string][]moment), told: make(map[key]state),
					}
					c.late = seed%2 == 0
					c.run(c.facade(inspector, podLister, events))
				})
			})
		}
	}
}

func (c *chaos) run(l cri.Lister) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	g := pleg.New(l, pleg.Options{Sink: c.sink, Parallel: 2, PodTimeout: 3 * time.Second, ListTimeout: 2 * time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(c.t, g.Run(ctx)) })
	for range 300 {
		c.change()
		c.complete(g)
		switch c.rnd.IntN(6) {
		case 0:
			c.trouble()
		case 1:
			g.Relist(c.pick())
		case 2:
			g.Reinspect(c.pick())
		case 3:
			uid := c.pick()
			wg.Go(func() { c.newer(ctx, g, uid) })
		}
		time.Sleep(time.Duration(c.rnd.ExpFloat64() * float64(100*time.Millisecond)))
	}
	for _, call := range []string{"List", "ListPod", "SandboxStatus", "ContainerStatus", "StreamEvents"} {
		c.fault(call, nil)
	}
	c.stream(nil)
	time.Sleep(30 * time.Second)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	want := statesOf(c.snapshot())
	assert.Empty(c.t, cmp.Diff(want, c.told), "events add up to the runtime's states")
	var listed cri.Snapshot
	pods, err := g.Pods()
	assert.NoError(c.t, err)
	for _, p := range pods {
		assert.NoError(c.t, g.PodHealthy(p.UID))
		listed.Sandboxes = append(listed.Sandboxes, p.Sandboxes...)
		listed.Containers = append(listed.Containers, p.Containers...)
	}
	assert.Empty(c.t, cmp.Diff(want, statesOf(listed)), "the cache holds the runtime's states")
	assert.NoError(c.t, g.Healthy())
	cancel()
	wg.Wait()
}

// complete checks that no pod is missing in what is called complete: each that a full relist must have seen, and that is
// still there, is known to be, also while nobody could look into it.
func (c *chaos) complete(g *pleg.Generator) {
	relisted := g.Status().LastRelist
	pods, err := g.Pods()
	if err != nil {
		return
	}
	assert.False(c.t, relisted.IsZero(), "complete, and never listed")
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, h := range c.history {
		last := h[len(h)-1]
		if last.state == gone || !last.at.Before(relisted) {
			continue
		}
		known := slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == id[:1] })
		assert.True(c.t, known, "%s is %q since %v, and its pod is missing in what is complete as of %v", id, last.state, last.at, relisted)
	}
}

func (c *chaos) pick() string { return podUIDs[c.rnd.IntN(len(podUIDs))] }

// sink replays the events. They are those of Diff, less the changes to a state between, which this runtime has not.
func (c *chaos) sink(events []pleg.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events = slices.DeleteFunc(events, func(e pleg.Event) bool { return e.Type == pleg.PodSync })
	replay(c.t, c.told, events)
}

// change does something to an object, tells the stream about it, or not, and takes it down in the history.
func (c *chaos) change() {
	uid := c.pick()
	id := fmt.Sprintf("%s%d", uid, c.rnd.IntN(3))
	last := moment{state: gone}
	if h := c.history[id]; len(h) > 0 {
		last = h[len(h)-1]
	}
	next := map[state]state{gone: runs, runs: dead, dead: gone}[last.state]
	event := map[state]cri.EventType{gone: cri.EventDeleted, runs: cri.EventStarted, dead: cri.EventStopped}[next]
	if next == runs && c.rnd.IntN(5) == 0 {
		next = dead // lived and died unseen
	}
	c.mu.Lock()
	c.history[id] = append(c.history[id], moment{time.Now(), next})
	c.mu.Unlock()
	switch next {
	case gone:
		c.drop(id)
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
		c.emit(e)
	}
}

// trouble makes a call slow, failing, hanging or well.
func (c *chaos) trouble() {
	call := []string{"List", "ListPod", "SandboxStatus", "ContainerStatus", "StreamEvents"}[c.rnd.IntN(5)]
	switch c.rnd.IntN(6) {
	case 0:
		boom := errors.New("boom")
		if call == "List" && c.rnd.IntN(2) == 0 {
			boom = cri.ErrTooLarge
		}
		c.fault(call, func(context.Context) error { return boom })
	case 1:
		c.fault(call, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	case 2:
		d := time.Duration(c.rnd.IntN(300)) * time.Millisecond
		c.fault(call, func(context.Context) error { time.Sleep(d); return nil })
	case 3:
		c.stream(nil)
	default:
		c.fault(call, nil)
	}
}

// newer waits for a pod newer than now and compares it with the history.
func (c *chaos) newer(ctx context.Context, g *pleg.Generator, uid string) {
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
		h := append([]moment{{state: gone}}, c.history[id]...)
		for j, m := range h {
			ended := time.Now().Add(time.Hour)
			if j+1 < len(h) {
				ended = h[j+1].at
			}
			ok = ok || m.state == got && !ended.Before(than)
		}
		assert.True(c.t, ok, "%s is %q, newer than %v, but was that only before: %v", id, got, than, h)
	}
}

func TestNewPanicsWithoutLister(t *testing.T) {
	assert.PanicsWithValue(t, "pleg.New: argument l is nil: required, such as a *remote.Client", func() { pleg.New(nil, pleg.Options{}) })
}

func TestNewerThanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pleg.New(newStage().facade(false, false, false), pleg.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := g.NewerThan(ctx, "a", time.Now()) // Run is not even called
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "wait for pod a")
	})
}

// Sink and hooks are called with no lock held: they may call each method that does not wait.
func TestSinkAndHooksMayCallTheGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		var g *pleg.Generator
		var seen []string
		ask := func(where string) {
			p, err := g.Get("a")
			require.NoError(t, err)
			assert.Len(t, p.Containers, 1, where)
			assert.NoError(t, g.Healthy(), where)
			assert.NoError(t, g.PodHealthy("a"))
			pods, _ := g.Pods()
			assert.Len(t, pods, 1)
			seen = append(seen, where)
		}
		g = pleg.New(s.facade(false, true, false), pleg.Options{
			Sink: func([]pleg.Event) { ask("sink"); g.Relist("a") },
			Hooks: pleg.Hooks{
				Relisted:       func(pleg.Relist) { ask("relisted") },
				PodRelisted:    func(pleg.PodRelist) { ask("podRelisted") },
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
		s := newStage()
		s.putSandbox(cri.Sandbox{ID: "s1", Pod: cri.PodIdentity{UID: "a"}})
		s.putSandbox(cri.Sandbox{ID: "s2", Pod: cri.PodIdentity{UID: "a"}})
		s.putSandbox(cri.Sandbox{ID: "s3", Pod: cri.PodIdentity{UID: "b"}, State: cri.SandboxNotReady})
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		s.putContainer(cri.Container{ID: "c2", PodUID: "a", State: cri.ContainerRunning})
		s.fault("List", func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
		var (
			relists []pleg.Relist
			pods    []pleg.PodRelist
			count   pleg.RunningCount
			stream  []string
		)
		g := pleg.New(s.facade(false, true, true), pleg.Options{Hooks: pleg.Hooks{
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
		s.emit(cri.Event{ID: "c1", Type: cri.EventStopped, Time: time.Now().Add(-7 * time.Millisecond)})
		time.Sleep(200 * time.Millisecond)
		g.Relist("b")
		time.Sleep(200 * time.Millisecond)
		s.stream(nil)
		s.fault("List", func(context.Context) error { return errors.New("boom") })
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
		assert.Equal(t, 1, count.Containers[cri.ContainerRunning], "no state keeps an old number")
	})
}

func TestPodError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.putContainer(cri.Container{ID: "c1", PodUID: "a", State: cri.ContainerRunning})
		s.fault("ContainerStatus", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		g := pleg.New(s.facade(true, false, false), pleg.Options{})
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
