// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// shortGrace is a grace period, in seconds, in which a container of a busy machine still runs its preStop hook and its handler
// of SIGTERM.
const shortGrace = 6

// endScenarios test the termination of pods, and its duration.
func endScenarios() []podScenario {
	return []podScenario{
		{
			name: "job with restart policy Never fails",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("bad", "echo up >&2; exit 3"), h.sh("good", "echo up"))
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				return pod
			},
			end: "Failed, bad: exited 3, good: exited 0",
		},
		{
			// The deadline counts from the start of the pod, which a busy machine delays. So the running pod gets it.
			name: "active deadline expires",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", exitOnTerm+"echo up; "+sleepForever)) },
			act: func(h *host) {
				h.awaitUp("main")
				h.change(func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(3)) })
			},
			end:    "Failed, DeadlineExceeded, main: exited 0",
			logged: []string{"main: up", "main: term"},
		},
		{
			name: "SIGTERM is ignored",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", ignoreTerm+"echo up; "+sleepForever)) },
			act: func(h *host) {
				h.awaitUp("main")
				removed := time.Now()
				h.remove(shortGrace)
				h.awaitOnce("Failed, main: exited 137")
				h.requireLogged("main: up", "main: term")
				h.requireBetween(shortGrace, removed, h.termination("main").FinishedAt.Time)
			},
		},
		{
			name: "grace period is shortened",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", ignoreTerm+"echo up; "+sleepForever)) },
			act: func(h *host) {
				h.awaitUp("main")
				h.remove(3600)
				h.awaitLogged("main: term")
				h.remove(2)
				h.awaitOnce("Failed, main: exited 137")
			},
		},
		preStopScenario(),
		{
			name: "sidecars terminate in reverse order",
			pod: func(h *host) *corev1.Pod {
				const ending = `trap 'echo term; sleep 1; echo end; exit 0' TERM; echo up; while :; do sleep 3600 & wait $!; done`
				pod := h.newPod(h.sh("main", ending))
				for _, name := range []string{"one", "two"} {
					c := h.sh(name, ending)
					c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
					pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
				}
				return pod
			},
			act: func(h *host) {
				h.await("Running, one: ready, two: ready, main: ready")
				for _, up := range []string{"one: up", "two: up", "main: up"} {
					h.awaitLogged(up) // in any order: a sidecar without a startup probe counts as started before its first log line
				}
				ups := h.logged()[:3]
				require.ElementsMatch(h.t, []string{"one: up", "two: up", "main: up"}, ups)
				h.remove(60)
				h.awaitOnce("Succeeded, one: exited 0, two: exited 0, main: exited 0")
				h.requireLogged(append(ups, "main: term", "main: end", "two: term", "two: end", "one: term", "one: end")...)
			},
		},
		orphanScenario(),
		evictionScenario(),
	}
}

// evictionScenario is the eviction of a pod. Evict returns when the pod has terminated. A restarted agent continues the
// eviction if it has a directory for records.
func evictionScenario() podScenario {
	return podScenario{
		name: "pod is evicted",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.sh("main", ignoreTerm+"echo up; "+sleepForever))
		},
		act: func(h *host) {
			h.awaitUp("main")
			if h.restart && h.podRoot == "" {
				return
			}
			evicted := time.Now()
			h.evict(podstatus.Eviction{Reason: "Evicted", Message: "low on memory", Grace: shortGrace * time.Second})
			h.awaitOnce("Failed, Evicted, main: exited 137")
			h.requireLogged("main: up", "main: term")
			h.requireBetween(shortGrace, evicted, h.termination("main").FinishedAt.Time)
		},
	}
}

// evict evicts the pod with the current agent.
func (h *host) evict(e podstatus.Eviction) {
	h.t.Helper()
	require.EventuallyWithT(h.t, func(t *assert.CollectT) {
		h.mu.Lock()
		r, uid := h.reconciler, string(h.pod.UID)
		h.mu.Unlock()
		assert.NoError(t, r.Evict(h.t.Context(), uid, e), h.diagnostics())
	}, waitLimit, 100*time.Millisecond)
}

// preStopScenario is a hook that takes longer than the grace period. The container then has two more seconds.
func preStopScenario() podScenario {
	return podScenario{
		name: "preStop takes longer than the grace period",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.containerWithPreStop("touch $SHARED/bye; sleep 3600"))
		},
		act: func(h *host) {
			h.awaitUp("main")
			removed := time.Now()
			h.remove(shortGrace)
			h.awaitOnce("Failed, main: exited 137")
			h.requireLogged("main: up", "main: bye", "main: term")
			h.requireBetween(shortGrace, removed, h.timeLogged("main: term"))
			h.requireBetween(shortGrace+2, removed, h.termination("main").FinishedAt.Time)
		},
	}
}

// orphanScenario is an orphaned pod whose preStop hook runs.
func orphanScenario() podScenario {
	return podScenario{
		name: "pod is orphaned",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.containerWithPreStop("touch $SHARED/bye; " + awaitFile("said")))
		},
		act: func(h *host) {
			h.awaitUp("main")
			h.mu.Lock()
			h.pod = nil
			h.mu.Unlock()
			h.restartAgent(0)
			h.awaitLogged("main: term") // the logs are removed with the pod
			h.requireLogged("main: up", "main: bye", "main: term")
		},
	}
}

// containerWithPreStop returns a container that runs until it is stopped. It logs when its preStop hook has created the file
// bye, and then creates the file said.
func (h *host) containerWithPreStop(preStop string) corev1.Container {
	c := h.sh("main", "("+awaitFile("bye")+"echo bye; touch $SHARED/said) & "+ignoreTerm+"echo up; "+sleepForever)
	c.Lifecycle = &corev1.Lifecycle{PreStop: h.hook(preStop)}
	return c
}

// awaitUp waits until the only container of a pod is reported as running and has logged "up".
func (h *host) awaitUp(container string) {
	h.t.Helper()
	h.await("Running, " + container + ": ready")
	h.awaitLogged(container + ": up")
}

// requireBetween requires at least some seconds between two times. Agent restarts and a busy machine can only lengthen the
// interval, so from is the time of an action of the test, not of a log line. Times are truncated, so a second less is
// accepted.
func (h *host) requireBetween(seconds float64, from, to time.Time) {
	h.t.Helper()
	require.Greater(h.t, to.Sub(from).Seconds(), seconds-1, h.diagnostics())
}
