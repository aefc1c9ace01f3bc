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

// stopper stops containers, after their preStop hooks, and sandboxes.
type stopper struct {
	node     *Node
	reporter *Reporter
	hooks    *hooks
	stopped  map[string]bool // sandboxes that are not ready whose network is known to be torn down

	mu       sync.Mutex     // guards failures
	failures map[string]int // by container ID: how often in a row the runtime failed to stop it
}

// stop kills containers, all at the same time but for those that terminate after others, and then stops sandboxes.
func (s *stopper) stop(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	errs := make([]error, len(a.Kill))
	ended := make([]chan struct{}, len(a.Kill))
	for i := range a.Kill {
		ended[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, k := range a.Kill {
		var before []chan struct{}
		for j := range a.Kill {
			for _, name := range k.WaitFor {
				if a.Kill[j].Name == name && j != i {
					before = append(before, ended[j])
				}
			}
		}
		s.reporter.Log("kill container", "container", k.Name, "id", k.ID, "grace", k.Grace, "reason", k.Reason)
		s.reporter.RecordEvent(podevents.ReasonKillingContainer, subjectOf(observed, k.Name, k.ID), "%s", k.EventMessage())
		wg.Go(func() {
			defer close(ended[i])
			errs[i] = s.kill(ctx, s.hooks.preStopCall(pod, observed, k), k, before)
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	for _, id := range a.StopSandboxes {
		if err == nil {
			err = s.node.Runtime.StopSandbox(ctx, id)
			s.stopped[id] = err == nil
		}
	}
	if err != nil && ctx.Err() == nil {
		s.reporter.RecordWarning(podevents.ReasonFailedToKillPod, Subject{}, "error killing pod: %v", err)
	}
	return err
}

// kill stops one container: after its preStop hook, and when those that terminate before it have terminated, or when there is no
// more time for either. Source: killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (s *stopper) kill(ctx context.Context, call hook.Call, k plan.Kill, before []chan struct{}) error {
	deadline := time.NewTimer(k.Grace)
	defer deadline.Stop()
	var hookTook time.Duration
	if k.PreStop != nil {
		preStop := s.startPreStop(ctx, call, k)
		defer preStop.end()
		hookTook = preStop.wait(deadline)
	}
	waitBegan := time.Now()
	for _, other := range before {
		if !await(other, deadline) {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.stopContainer(ctx, k.ID, hook.Budget(k.Grace, hookTook, time.Since(waitBegan)))
}

// maxStopFailures is how often a runtime may fail to stop a container before that is killed.
const maxStopFailures = 5

// stopContainer stops a container. One that cannot be asked to end is killed in the end, or its pod would never go: so
// containerd 2.4 does where an image names no valid signal. The kubelet stops the sandbox instead, at once.
func (s *stopper) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	s.mu.Lock()
	if s.failures[id] >= maxStopFailures {
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

// await waits until something is done, or returns false at the deadline.
func await(done <-chan struct{}, deadline *time.Timer) bool {
	select {
	case <-done:
		return true
	case <-deadline.C:
		deadline.Reset(0) // for the next that waits
		return false
	}
}

// stoppedSandboxes returns the sandboxes of observed that are not ready and were stopped by s.
func (s *stopper) stoppedSandboxes(observed cri.Pod) map[string]bool {
	maps.DeleteFunc(s.stopped, func(id string, _ bool) bool {
		return !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id && s.State != cri.SandboxReady })
	})
	return s.stopped
}
