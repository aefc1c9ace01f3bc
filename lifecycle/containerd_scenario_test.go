// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// podScenario is one of a pod, from its first day to where it stays or is no more.
type podScenario struct {
	name string
	// via is what the agent talks to instead of the runtime; nil: the runtime.
	via func(*remote.Client) execRuntime
	// pod makes the pod that is wanted at first.
	pod func(h *host) *corev1.Pod
	// tell is what happens to the pod while it lives; nil: nothing but what is in its spec.
	tell func(h *host)
	// end is the status of the pod when all is told; empty: tell deletes it, and what counts is that nothing is left.
	end string
	// said is what the containers say, in this order; nil: tell has looked at that.
	said []string
}

// run tells a scenario to its end, and then takes the pod away.
func (s *podScenario) run(h *host) {
	h.boot()
	h.t.Cleanup(func() { h.stop() })
	h.t.Cleanup(h.clear)
	h.set(s.pod(h))
	disturbed := h.disturbed()
	defer disturbed()
	if s.tell != nil {
		s.tell(h)
	}
	if s.end != "" {
		h.await(s.end)
	}
	disturbed()
	if s.end != "" && h.restart {
		h.reboot(0) // another agent comes to the same end
		h.await(s.end)
	}
	if s.said != nil {
		h.requireSaid(s.said...)
	}
	h.set(nil)
	h.awaitGone()
}

// clear takes the pod of a scenario that went wrong away, as far as that is possible.
func (h *host) clear() {
	if !h.t.Failed() {
		return
	}
	h.set(nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for p, err := h.observed(ctx); ctx.Err() == nil && (err != nil || p.UID != ""); p, err = h.observed(ctx) {
		time.Sleep(100 * time.Millisecond)
	}
}

// disturbed begins to restart the agent, if it is to be, and returns what ends that.
func (h *host) disturbed() (end func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var wg sync.WaitGroup
	if h.restart {
		wg.Go(func() { h.disturb(ctx, 8) })
	}
	return func() { cancel(); wg.Wait() }
}

// tellAll tells scenarios to their ends on a containerd of their own, some at a time, each to an agent of its own that sees
// the pods of the others and leaves them alone.
func tellAll(t *testing.T, restart bool, scenarios []podScenario) *lab.Lab {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	status, err := client.Status(t.Context())
	require.NoError(t, err)
	const atOnce = 6
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, s := range scenarios {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(s.name, func(t *testing.T) {
				began := time.Now()
				h := newHost(t, client, s.name, restart)
				h.handlers, h.image, h.registry = status.Handlers, lab.BusyboxImage, l.RegistryHost()
				h.shared, h.podRoot = "/dev/shm", t.TempDir()
				if s.via != nil {
					h.rt = s.via(client)
				}
				s.run(h)
				t.Logf("told in %s", time.Since(began).Round(100*time.Millisecond))
			})
		})
	}
	wg.Wait()
	return l
}

// requireNothingLeft waits until nothing is left of any pod: no sandbox, mount, network namespace, interface or address.
func requireNothingLeft(t *testing.T, l *lab.Lab, except ...string) {
	t.Helper()
	if t.Failed() {
		return // as a scenario that ended badly leaves its pod
	}
	var left []string
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if left, err = l.Leftovers(t.Context()); err == nil {
			left = slices.DeleteFunc(left, func(line string) bool {
				kind, _, _ := strings.Cut(line, " ")
				return slices.Contains(except, kind)
			})
			if len(left) == 0 {
				return
			}
			err = errors.New(strings.Join(left, ", "))
		}
		if time.Now().After(deadline) {
			require.NoError(t, err)
		}
	}
}

// What a pod goes through in its life, on containerd and as it is told in virtual time elsewhere.
func TestIntegrationScenarios(t *testing.T) {
	requireNothingLeft(t, tellAll(t, false, allScenarios()))
}

// The same scenarios come to the same ends when the agent ends and starts anew at any moment of them.
func TestIntegrationScenariosWithRestarts(t *testing.T) {
	// containerd 2.4 can lose a shim, and what runs in it, when the caller of RunPodSandbox or StartContainer dies in the
	// middle of it; no CRI call shows it.
	requireNothingLeft(t, tellAll(t, true, allScenarios()), "shim", "runc", "mount")
}

func allScenarios() []podScenario {
	return slices.Concat(startScenarios(), endScenarios(), specScenarios(), nodeScenarios(), imageScenarios(), []podScenario{cutShortScenario(), editedScenario()})
}
