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

// podScenario is the scenario of one pod, from its creation to its last status or removal.
type podScenario struct {
	name string
	// via wraps the runtime for the agent; nil: the agent uses the runtime itself.
	via func(*remote.Client) execRuntime
	// pod returns the first desired pod.
	pod func(h *host) *corev1.Pod
	// act acts on the pod while it runs; nil: no action.
	act func(h *host)
	// end is the last status of the pod; empty: act deletes the pod, and nothing of it must remain.
	end string
	// logged are the expected log lines, in this order; nil: act checks them.
	logged []string
}

// run runs a scenario to its end, and then removes the pod.
func (s *podScenario) run(h *host) {
	h.startAgent()
	h.t.Cleanup(func() { h.stop() })
	h.t.Cleanup(h.cleanUp)
	h.set(s.pod(h))
	stopRestarts := h.startRestarts()
	defer stopRestarts()
	if s.act != nil {
		s.act(h)
	}
	if s.end != "" {
		h.await(s.end)
	}
	stopRestarts()
	if s.end != "" && h.restart {
		h.restartAgent(0) // a restarted agent reports an equal status
		h.await(s.end)
	}
	if s.logged != nil {
		h.requireLogged(s.logged...)
	}
	h.set(nil)
	h.awaitRemoved()
}

// cleanUp removes the pod of a failed scenario as far as possible.
func (h *host) cleanUp() {
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

// startRestarts starts to restart the agent, if the test requires restarts, and returns the function that stops them.
func (h *host) startRestarts() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var wg sync.WaitGroup
	if h.restart {
		wg.Go(func() { h.restartAtRandom(ctx, 8) })
	}
	return func() { cancel(); wg.Wait() }
}

// runScenarios runs scenarios on a private containerd, several concurrently. Each scenario has its own agent, which must not
// change the pods of other agents.
func runScenarios(t *testing.T, restart bool, scenarios []podScenario) *lab.Lab {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	status, err := client.Status(t.Context())
	require.NoError(t, err)
	const atOnce = 6
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, s := range scenarios {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t.Run(s.name, func(t *testing.T) {
				began := time.Now()
				h := newHost(t, client, s.name, restart)
				h.handlers, h.image, h.registry = status.Handlers, lab.BusyboxImage, l.RegistryHost()
				h.shared, h.podRoot = "/dev/shm", t.TempDir()
				if s.via != nil {
					h.rt = s.via(client)
				}
				s.run(h)
				t.Logf("completed in %s", time.Since(began).Round(100*time.Millisecond))
			})
		})
	}
	wg.Wait()
	return l
}

// requireNothingLeft waits until no sandbox, mount, network namespace, interface or address of a pod is left.
func requireNothingLeft(t *testing.T, l *lab.Lab, except ...string) {
	t.Helper()
	if t.Failed() {
		return // a failed scenario leaves its pod
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

// Scenarios of pods on containerd. See scenarios_test.go for scenarios in virtual time.
func TestIntegrationScenarios(t *testing.T) {
	requireNothingLeft(t, runScenarios(t, false, allScenarios()))
}

// The scenarios have equal results if the agent is killed and restarted at random times.
func TestIntegrationScenariosWithRestarts(t *testing.T) {
	// containerd 2.4 can lose a shim with its processes if the caller of RunPodSandbox or StartContainer is killed during
	// the call. No CRI call reports the lost shim.
	requireNothingLeft(t, runScenarios(t, true, allScenarios()), "shim", "runc", "mount")
}

func allScenarios() []podScenario {
	return slices.Concat(startScenarios(), endScenarios(), specScenarios(), nodeScenarios(), imageScenarios(), []podScenario{cutShortScenario(), editedScenario()})
}
