// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package runtimestate asks a runtime about itself: its name, and whether the network of pods is ready. It asks only while
// somebody wants to know, and a runtime that does not answer holds nobody up for long.
package runtimestate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/callout"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	askTimeout    = 10 * time.Second // of one call
	answerTimeout = 2 * time.Second  // how long a pod waits for the answer
	freshFor      = 5 * time.Second  // how long it counts without being asked for again, as in the kubelet
	// notReadyFor is how long the answer that the network is not ready counts where no other one comes.
	notReadyFor = time.Minute
	again       = time.Second      // between two questions while pods wait
	forget      = 20 * time.Second // after which a pod that has not asked again does not wait any more
)

// Runtime is what a runtime says of itself. Make one with [New].
type Runtime struct {
	reporter cri.StatusReporter // nil: it says nothing
	ready    func(uids ...string)
	wanted   chan struct{}

	mu    sync.Mutex // guards what follows
	state state
	next  chan struct{} // closed at the next answer
}

// New returns what a runtime says of itself; where that is no [cri.StatusReporter], nothing. ready is called, with no lock held,
// with the pods that have waited for the network once it is ready.
func New(rt cri.Runtime, ready func(uids ...string)) *Runtime {
	reporter, _ := rt.(cri.StatusReporter)
	return &Runtime{reporter: reporter, ready: ready, wanted: make(chan struct{}, 1), next: make(chan struct{})}
}

// Name asks for the name of the runtime, which is empty where it has none.
func (r *Runtime) Name(ctx context.Context) (string, error) {
	if r.reporter == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	version, err := r.reporter.Version(ctx)
	return version.RuntimeName, err
}

// CheckNetwork returns an error if the network of pods is known not to be ready; a pod of that UID then waits for it. An answer
// that is older than 5 s is asked for anew, and with wait that is waited for, 2 s at most. Without any answer the network
// counts as ready: the runtime says itself what is wrong when it creates a sandbox.
func (r *Runtime) CheckNetwork(ctx context.Context, uid string, wait bool) error {
	if r.reporter == nil {
		return nil
	}
	r.mu.Lock()
	stale, next := r.state.stale(time.Now()), r.next
	wait = wait && stale && !r.state.silent
	r.mu.Unlock()
	if stale {
		r.poke()
	}
	if wait {
		r.await(ctx, next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.state.check(uid, time.Now())
	if err != nil {
		r.poke()
	}
	return err
}

func (r *Runtime) poke() {
	sleep.Wake(r.wanted)
}

// await waits for the next answer. When it takes too long, nobody waits again until there is one.
func (r *Runtime) await(ctx context.Context, next <-chan struct{}) {
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case <-next:
	case <-ctx.Done():
	case <-timer.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		select {
		case <-next:
		default:
			r.state.silent = true
		}
	}
}

// Run asks until ctx ends. It returns when nothing that it has started is under way any more, but for a call that does not end
// with its context.
func (r *Runtime) Run(ctx context.Context) {
	if r.reporter == nil {
		return
	}
	timer := time.NewTimer(again)
	timer.Stop()
	defer timer.Stop()
	var late <-chan error // of a call that has not ended with its context
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wanted:
		case <-timer.C:
		}
		hangs := late != nil && len(late) == 0 // one is enough
		if early := again - time.Since(asked); early > 0 {
			timer.Reset(early)
			continue
		}
		switch {
		case hangs:
			timer.Reset(again)
			continue
		case !r.due():
			continue
		}
		asked = time.Now()
		if late = r.ask(ctx); r.pods() {
			timer.Reset(again)
		}
	}
}

// ask asks once, and tells those who wait.
func (r *Runtime) ask(ctx context.Context) (late <-chan error) {
	var status cri.Status
	late, err := callout.Do(ctx, askTimeout, func(ctx context.Context) error {
		answer, err := r.reporter.Status(ctx)
		if err == nil {
			status = answer
		}
		return err
	})
	r.mu.Lock()
	var ready []string
	if err == nil {
		ready = r.state.answer(NetworkError(status), time.Now())
	} else {
		r.state.silent = true
	}
	close(r.next)
	r.next = make(chan struct{})
	r.mu.Unlock()
	if len(ready) > 0 {
		r.ready(ready...)
	}
	return late
}

// due reports whether the last answer is too old, or one that pods wait with.
func (r *Runtime) due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return r.state.stale(now) || r.state.waits(now)
}

// pods reports whether pods wait.
func (r *Runtime) pods() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.waits(time.Now())
}

// NetworkError returns why the network of pods is not ready, in the words of the kubelet (pkg/kubelet/kubelet.go,
// updateRuntimeUp), or nil.
func NetworkError(s cri.Status) error {
	c, ok := s.Condition(cri.ConditionNetworkReady)
	switch {
	case !ok:
		return fmt.Errorf("container runtime network not ready: the runtime has no condition %s", cri.ConditionNetworkReady)
	case !c.Status:
		return fmt.Errorf("container runtime network not ready: %s=%t reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message)
	}
	return nil
}
