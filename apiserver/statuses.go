// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// StatusesOptions configures [Statuses]. Pods and MayRun are required.
type StatusesOptions struct {
	// Pods returns the pods of the agent with their statuses, see [lifecycle.Reconciler.Pods]. Required.
	Pods func() []lifecycle.PodState
	// MayRun reports whether containers of a pod may still run, see [lifecycle.Reconciler.MayRun]. It is called for deleted pods
	// that Pods does not return. Required.
	MayRun func(uid string) bool
	// Parallel is the largest number of requests in flight. Zero means 16.
	Parallel int
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
	// Logger gets failed requests and contradicting statuses. Nil means that of the Source.
	Logger *slog.Logger
	// Hooks reports sent statuses, deleted pods and errors.
	Hooks StatusHooks
}

// StatusHooks reports the requests of [Statuses]. Any hook may be nil. The goroutine of [Statuses.Run] calls them with no lock
// held; they must not block.
type StatusHooks struct {
	// StatusSent is called when the API server has accepted a status. took is the time since the status was first due.
	StatusSent func(pod cri.PodIdentity, took time.Duration)
	// PodDeleted is called when a terminating pod object has been removed from the API server.
	PodDeleted func(pod cri.PodIdentity)
	// Error is called for each failed request, with the delay before the retry. A status that contradicts the previous status
	// (a statuspatch.TransitionError) is sent without its invalid changes; Error is then called once, with retry zero.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// Statuses sends pod statuses to the API server and removes terminating pods whose resources are released. Create one with
// [Source.Statuses]. Its methods [Statuses.Changed], [Statuses.ResourcesReleased] and [Statuses.PodRemoved] are for
// [lifecycle.Hooks].
//
// It compares StatusesOptions.Pods with the watched pods, and stores only the calls of ResourcesReleased. So no status is lost
// while the API server is unavailable, only the newest status of a pod is sent, and a restarted agent sends only differences.
type Statuses struct {
	client *kubeapi.Client
	pods   *Pods // the pods of the API server
	opts   StatusesOptions
	guard  runonce.Guard
	wakeup chan struct{}

	mu       sync.Mutex // guards the fields below
	released map[string]bool
	waiters  []chan struct{} // callers of Flush
	pending  int             // pods whose status or removal is not sent yet

	// Used by the goroutine of Run only.
	tracked    map[string]*trackedPod // by UID; for a static pod, not that of its mirror pod
	rejections rejectionLimiter
	results    chan result
	inFlight   int
	failing    bool // the last request failed
}

// result is the outcome of one request for a pod.
type result struct {
	pod      *trackedPod
	request  request
	response *corev1.Pod
	err      error
}

// Statuses returns a sender of pod statuses. [Pods.Run] must run too: it reads the current statuses from the API server. An
// error names the missing or invalid option.
func (s *Source) Statuses(opts StatusesOptions) (*Statuses, error) {
	switch {
	case opts.Pods == nil:
		return nil, errors.New("apiserver.Statuses: StatusesOptions.Pods: required: it is Pods of the lifecycle.Reconciler")
	case opts.MayRun == nil:
		return nil, errors.New("apiserver.Statuses: StatusesOptions.MayRun: required: it is MayRun of the lifecycle.Reconciler")
	case opts.Parallel < 0:
		return nil, fmt.Errorf("apiserver.Statuses: StatusesOptions.Parallel: %d must be at least 0", opts.Parallel)
	}
	opts.Parallel = cmp.Or(opts.Parallel, 16)
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = s.opts.Logger
	}
	statuses := &Statuses{
		client: s.client, pods: s.pods, opts: opts, wakeup: make(chan struct{}, 1),
		released: map[string]bool{}, tracked: map[string]*trackedPod{}, results: make(chan result, opts.Parallel),
	}
	s.pods.addListener(func(...string) { statuses.requestPass() })
	return statuses, nil
}

// Changed makes Run compare the statuses in the agent with the statuses that the API server has now. It does not block. Use
// it as the lifecycle hook StatusChanged.
func (s *Statuses) Changed(*corev1.Pod, *corev1.PodStatus) { s.requestPass() }

// ResourcesReleased records that the resources of a terminated pod are released: once the pod object is deleted and terminal,
// Run removes it. It does not block. Use it as the lifecycle hook of this name.
func (s *Statuses) ResourcesReleased(pod cri.PodIdentity) {
	s.mu.Lock()
	s.released[pod.UID] = true
	s.mu.Unlock()
	s.requestPass()
}

// PodRemoved wakes Run after a pod was removed from StatusesOptions.Pods. It does not block. Use it as the lifecycle hook
// PodRemoved.
func (s *Statuses) PodRemoved(cri.PodIdentity) { s.requestPass() }

// pendingPods returns how many pods had an unsent status or an unsent deletion when Run last checked all pods.
func (s *Statuses) pendingPods() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending
}

// Flush waits until the API server has the current status of every pod. Run must be running; during Flush, it sends the
// statuses of rejected pods without delay. If ctx ends first, the error contains the number of unsent statuses.
func (s *Statuses) Flush(ctx context.Context) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.waiters = append(s.waiters, done)
	s.mu.Unlock()
	s.requestPass()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush statuses: %w: %d pods are waiting to be sent", ctx.Err(), s.pendingPods())
	}
}

// requestPass wakes Run to compare the pods.
func (s *Statuses) requestPass() {
	s.guard.Require("apiserver.Statuses", s.opts.Logger, nil)
	sleep.Wake(s.wakeup)
}

// resyncPeriod is the longest time between two comparisons of agent and API server. Unchanged statuses are not sent. Source:
// syncPeriod in pkg/kubelet/status/status_manager.go.
const resyncPeriod = 10 * time.Second

// Run sends statuses until ctx ends. It returns nil after its last request has returned. A second call of Run returns an error.
func (s *Statuses) Run(ctx context.Context) error {
	if err := s.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Statuses: %w", err)
	}
	defer s.guard.End()
	var requests sync.WaitGroup
	defer requests.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wakeup:
		case <-timer.C:
		case r := <-s.results:
			s.finishRequest(&r)
		}
		timer.Reset(s.sendDue(ctx, &requests))
	}
}
