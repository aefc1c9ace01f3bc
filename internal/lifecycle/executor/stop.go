// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// stopper stops the containers of a pod, after their preStop hooks, and then its sandboxes.
type stopper struct {
	node       *Node
	reporter   *Reporter
	hooks      *hooks
	stoppedIDs map[string]bool // IDs of sandboxes that are not ready and whose network was torn down by StopSandbox

	mu       sync.Mutex     // guards failures
	failures map[string]int // by container ID: consecutive failures of StopContainer
}

// stopPod stops the containers in actions.Kill in parallel, respecting their WaitFor lists, and then actions.StopSandboxes.
func (s *stopper) stopPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	errs := make([]error, len(actions.Kill))
	ended := make([]chan struct{}, len(actions.Kill))
	for i := range actions.Kill {
		ended[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, k := range actions.Kill {
		var before []chan struct{}
		for j := range actions.Kill {
			for _, name := range k.WaitFor {
				if actions.Kill[j].Name == name && j != i {
					before = append(before, ended[j])
				}
			}
		}
		s.reporter.Log("kill container", "container", k.Name, "id", k.ID, "grace", k.Grace, "reason", k.Reason)
		s.reporter.RecordEvent(podevents.ReasonKillingContainer, subjectOf(observed, k.Name, k.ID), "%s", k.EventMessage())
		wg.Go(func() {
			defer close(ended[i])
			errs[i] = s.killContainer(ctx, s.hooks.newPreStopCall(pod, observed, k), k, before)
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	for _, id := range actions.StopSandboxes {
		if err == nil {
			err = s.node.Runtime.StopSandbox(ctx, id)
			s.stoppedIDs[id] = err == nil
		}
	}
	if err != nil && ctx.Err() == nil {
		s.reporter.RecordWarning(podevents.ReasonFailedToKillPod, Subject{}, "error killing pod: %v", err)
	}
	return err
}

// killContainer runs the preStop hook of a container, waits until the channels in waitFor are closed, and stops the
// container. Source: killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (s *stopper) killContainer(ctx context.Context, call hook.Call, kill plan.Kill, waitFor []chan struct{}) error {
	// Hook and wait together take at most the grace period.
	deadline := time.NewTimer(kill.Grace)
	defer deadline.Stop()
	var hookTook time.Duration
	if kill.PreStop != nil {
		preStop := s.startPreStop(ctx, call, kill)
		defer preStop.cancelAndWait()
		hookTook = preStop.awaitReturn(deadline)
	}
	waitBegan := time.Now()
	for _, other := range waitFor {
		if !waitUntil(other, deadline) {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.stopContainer(ctx, kill.ID, hook.Budget(kill.Grace, hookTook, time.Since(waitBegan)))
}

// maxStopFailures is how many times StopContainer may fail before the container is killed without grace period.
const maxStopFailures = 5

// stopContainer stops a container, without a grace period after maxStopFailures failed calls.
func (s *stopper) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	s.mu.Lock()
	if s.failures[id] >= maxStopFailures {
		// In containerd 2.4, every stop with a grace period fails for an image with an invalid stop signal. The kubelet
		// stops the sandbox instead.
		grace = 0
	}
	s.mu.Unlock()
	err := s.node.Runtime.StopContainer(ctx, id, grace)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.failures, id)
	case ctx.Err() == nil && !errors.Is(err, cri.ErrUnavailable):
		s.failures[id]++
	}
	return err
}

// waitUntil waits until done is closed or deadline fires. It returns false if deadline fires first.
func waitUntil(done <-chan struct{}, deadline *time.Timer) bool {
	select {
	case <-done:
		return true
	case <-deadline.C:
		deadline.Reset(0) // fires at once for the next wait
		return false
	}
}

// stoppedSandboxes returns the IDs of the sandboxes that s has stopped. It removes an ID if the sandbox is ready or is not
// in observed.
func (s *stopper) stoppedSandboxes(observed cri.Pod) map[string]bool {
	maps.DeleteFunc(s.stoppedIDs, func(id string, _ bool) bool {
		return !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id && s.State != cri.SandboxReady })
	})
	return s.stoppedIDs
}
