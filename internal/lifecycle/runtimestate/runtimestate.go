// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package runtimestate queries the status of a container runtime: its name, and whether the pod network is ready. It calls the
// runtime only on demand, and a hung runtime blocks callers for at most 2 s.
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
	callTimeout = 10 * time.Second // of one call to the runtime
	waitTimeout = 2 * time.Second  // how long CheckNetwork waits for a status
	freshPeriod = 5 * time.Second  // how long a status is valid, as in the kubelet
	// notReadyPeriod is how long a network error stays valid without a newer status.
	notReadyPeriod = time.Minute
	retryPeriod    = time.Second      // between two calls while pods wait for the network
	waitingPeriod  = 20 * time.Second // after which a pod that does not call CheckNetwork again no longer waits
)

// Runtime caches the status of a container runtime. Use [New] to create it.
type Runtime struct {
	reporter  cri.StatusReporter // nil: the runtime does not report a status
	podsReady func(uids ...string)
	requested chan struct{} // signalled when Run must fetch a status

	mu    sync.Mutex // guards state and next
	state state
	next  chan struct{} // closed when the next status is stored
}

// New returns a Runtime that caches the status of rt. When the pod network becomes ready, Run calls ready with the UIDs of
// the waiting pods, with no lock held. Without a [cri.StatusReporter] the network always counts as ready.
func New(rt cri.Runtime, ready func(uids ...string)) *Runtime {
	reporter, _ := rt.(cri.StatusReporter)
	return &Runtime{reporter: reporter, podsReady: ready, requested: make(chan struct{}, 1), next: make(chan struct{})}
}

// Name returns the name of the runtime, or "" if the runtime does not report one.
func (r *Runtime) Name(ctx context.Context) (string, error) {
	if r.reporter == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	version, err := r.reporter.Version(ctx)
	return version.RuntimeName, err
}

// CheckNetwork returns an error if the pod network is not ready, and records that the pod waits for it. If the cached status
// is older than 5 s, it requests a new one, and waits for it at most 2 s if wait is true. Without any status it returns nil:
// the runtime reports a missing network when it creates the sandbox.
func (r *Runtime) CheckNetwork(ctx context.Context, uid string, wait bool) error {
	if r.reporter == nil {
		return nil
	}
	r.mu.Lock()
	stale, next := r.state.isStale(time.Now()), r.next
	wait = wait && stale && !r.state.unresponsive
	r.mu.Unlock()
	if stale {
		r.requestStatus()
	}
	if wait {
		r.awaitStatus(ctx, next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.state.checkPod(uid, time.Now())
	if err != nil {
		r.requestStatus()
	}
	return err
}

// requestStatus makes Run fetch the runtime status. It does not block.
func (r *Runtime) requestStatus() {
	sleep.Wake(r.requested)
}

// awaitStatus waits until Run has fetched a status and closes the channel next.
func (r *Runtime) awaitStatus(ctx context.Context, next <-chan struct{}) {
	timer := time.NewTimer(waitTimeout)
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
			// Other callers then do not wait.
			r.state.unresponsive = true
		}
	}
}

// Run fetches the runtime status on request, until ctx ends. It returns at the end of ctx even if a call to the runtime
// hangs.
func (r *Runtime) Run(ctx context.Context) {
	if r.reporter == nil {
		return
	}
	timer := time.NewTimer(retryPeriod)
	timer.Stop()
	defer timer.Stop()
	var late <-chan error // receives the result of a call that has ignored its context
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.requested:
		case <-timer.C:
		}
		hangs := late != nil && len(late) == 0 // do not start a second hung call
		if early := retryPeriod - time.Since(asked); early > 0 {
			timer.Reset(early)
			continue
		}
		switch {
		case hangs:
			timer.Reset(retryPeriod)
			continue
		case !r.isUpdateDue():
			continue
		}
		asked = time.Now()
		if late = r.fetchStatus(ctx); r.hasWaitingPods() {
			timer.Reset(retryPeriod)
		}
	}
}

// fetchStatus fetches and stores the runtime status, and wakes its waiters. late receives the error of a call that hangs.
func (r *Runtime) fetchStatus(ctx context.Context) (late <-chan error) {
	var status cri.Status
	late, err := callout.Do(ctx, callTimeout, func(ctx context.Context) error {
		answer, err := r.reporter.Status(ctx)
		if err == nil {
			status = answer
		}
		return err
	})
	r.mu.Lock()
	var ready []string
	if err == nil {
		ready = r.state.recordStatus(NetworkError(status), time.Now())
	} else {
		r.state.unresponsive = true
	}
	close(r.next)
	r.next = make(chan struct{})
	r.mu.Unlock()
	if len(ready) > 0 {
		r.podsReady(ready...)
	}
	return late
}

// isUpdateDue reports whether Run must fetch a new status: the cached status is outdated, or pods wait for the pod network.
func (r *Runtime) isUpdateDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return r.state.isStale(now) || r.state.hasWaitingPods(now)
}

// hasWaitingPods reports whether at least one pod waits for the pod network.
func (r *Runtime) hasWaitingPods() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.hasWaitingPods(time.Now())
}

// NetworkError returns an error if the pod network is not ready according to status. The error has the text of the kubelet.
// Source: updateRuntimeUp in pkg/kubelet/kubelet.go.
func NetworkError(status cri.Status) error {
	c, ok := status.Condition(cri.ConditionNetworkReady)
	switch {
	case !ok:
		return fmt.Errorf("container runtime network not ready: the runtime has no condition %s", cri.ConditionNetworkReady)
	case !c.Status:
		return fmt.Errorf("container runtime network not ready: %s=%t reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message)
	}
	return nil
}
