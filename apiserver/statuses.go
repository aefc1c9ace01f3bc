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

// StatusesOptions configures [Statuses]. What is not marked as required has a zero value for production.
type StatusesOptions struct {
	// Pods is the level of what is sent, see [lifecycle.Reconciler.Pods]. Required.
	Pods func() []lifecycle.PodState
	// MayRun is asked about pods that are deleted and not among Pods, see [lifecycle.Reconciler.MayRun]. Required.
	MayRun func(uid string) bool
	// Parallel is how many requests are under way at a time. Zero means 16.
	Parallel int
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
	// Logger gets what cannot be sent. Nil is that of the Source.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks StatusHooks
}

// StatusHooks are called by the goroutine of [Statuses.Run], with no lock held, and must not block. Any may be nil.
type StatusHooks struct {
	// StatusSent is called when the API server has taken a status, with how long it had been due.
	StatusSent func(pod cri.PodIdentity, took time.Duration)
	// PodDeleted is called when a pod that was deleted has been removed from the API server.
	PodDeleted func(pod cri.PodIdentity)
	// Error is called for each failed request, with the wait before the next one; and without a wait, once, for a status
	// that contradicts the one before, which is a statuspatch.TransitionError: the rest of that status is sent.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// Statuses hands the statuses of pods to the API server, and removes from it the pods that were deleted and of which nothing is left.
// Make one with [Source.Statuses]; the methods [Statuses.Changed], [Statuses.ResourcesReleased] and [Statuses.PodRemoved] are for [lifecycle.Hooks].
//
// It knows nothing that is not in StatusesOptions.Pods and at the API server, but what it was told by Left: so nothing is lost while
// that is away, of several statuses of a pod the newest is sent, and after a restart only what differs.
type Statuses struct {
	client *kubeapi.Client
	pods   *Pods // as they are watched
	opts   StatusesOptions
	guard  runonce.Guard
	wakeup chan struct{}

	mu       sync.Mutex // guards what follows
	released map[string]bool
	waiters  []chan struct{} // of Flush
	pending  int

	// Of the goroutine of Run alone.
	tracked    map[string]*trackedPod // by the UID that the agent knows a pod by
	rejections rejectionLimiter
	results    chan result
	inFlight   int
	failing    bool // the last requests failed
}

// result is what became of a request.
type result struct {
	pod      *trackedPod
	request  request
	response *corev1.Pod
	err      error
}

// Statuses returns what sends the statuses of the pods of the node, which Pods of the Source must be watching. An error names the option
// that is missing.
func (s *Source) Statuses(o StatusesOptions) (*Statuses, error) {
	switch {
	case o.Pods == nil:
		return nil, errors.New("apiserver.Statuses: StatusesOptions.Pods: required: it is Pods of the lifecycle.Reconciler")
	case o.MayRun == nil:
		return nil, errors.New("apiserver.Statuses: StatusesOptions.MayRun: required: it is MayRun of the lifecycle.Reconciler")
	case o.Parallel < 0:
		return nil, fmt.Errorf("apiserver.Statuses: StatusesOptions.Parallel: %d must be at least 0", o.Parallel)
	}
	o.Parallel = cmp.Or(o.Parallel, 16)
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	statuses := &Statuses{
		client: s.client, pods: s.pods, opts: o, wakeup: make(chan struct{}, 1),
		released: map[string]bool{}, tracked: map[string]*trackedPod{}, results: make(chan result, o.Parallel),
	}
	s.pods.addListener(func(...string) { statuses.requestPass() })
	return statuses, nil
}

// Changed has the pods looked at. It is for Hooks.Status of package lifecycle, and does not wait.
func (s *Statuses) Changed(*corev1.Pod, *corev1.PodStatus) { s.requestPass() }

// ResourcesReleased says that nothing of a pod is left, so that it can be removed once it is deleted and its terminal phase is sent. It is for
// Hooks.ResourcesReleased of package lifecycle, and does not wait.
func (s *Statuses) ResourcesReleased(pod cri.PodIdentity) {
	s.mu.Lock()
	s.released[pod.UID] = true
	s.mu.Unlock()
	s.requestPass()
}

// PodRemoved says that a pod is no longer among Pods. It is for Hooks.Gone of package lifecycle, and does not wait.
func (s *Statuses) PodRemoved(cri.PodIdentity) { s.requestPass() }

// pendingPods returns how many pods the API server has another status of than the agent, or has to remove, as far as was looked at.
func (s *Statuses) pendingPods() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending
}

// Flush returns when the API server has the status of every pod as it is now, those of rejected pods included. The error says how many
// it did not have when ctx ended. Run sends them: it must be running.
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

// wake has Run look at the pods.
func (s *Statuses) requestPass() {
	s.guard.Require("apiserver.Statuses", s.opts.Logger, nil)
	sleep.Wake(s.wakeup)
}

// resync is how often pods are looked at without a change. Nothing is sent for those that are as they were. Source: syncPeriod in
// pkg/kubelet/status/status_manager.go.
const resyncPeriod = 10 * time.Second

// Run sends statuses until ctx ends, and returns nil when all its requests have. It returns an error when it is called twice.
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
