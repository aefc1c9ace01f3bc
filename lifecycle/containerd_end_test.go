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

// endScenarios are about the termination of pods, and its duration.
func endScenarios() []podScenario {
	return []podScenario{
		{
			name: "a job with restart policy Never fails",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("bad", "echo up >&2; exit 3"), h.sh("good", "echo up"))
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				return pod
			},
			end: "Failed, bad: exited 3, good: exited 0",
		},
		{
			name: "the deadline passes",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", leaves+"echo up; "+endless))
				pod.Spec.ActiveDeadlineSeconds = new(int64(8))
				return pod
			},
			end:  "Failed, DeadlineExceeded, main: exited 0",
			said: []string{"main: up", "main: term"},
		},
		{
			name: "SIGTERM is ignored",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", stays+"echo up; "+endless)) },
			tell: func(h *host) {
				h.awaitUp("main")
				removed := time.Now()
				h.remove(3)
				h.awaitOnce("Failed, main: exited 137")
				h.requireSaid("main: up", "main: term")
				h.requireBetween(3, removed, h.end("main").FinishedAt.Time)
			},
		},
		{
			name: "the grace period shrinks",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", stays+"echo up; "+endless)) },
			tell: func(h *host) {
				h.awaitUp("main")
				h.remove(3600)
				h.awaitSaid("main: term")
				h.remove(2)
				h.awaitOnce("Failed, main: exited 137")
			},
		},
		preStopScenario(),
		{
			name: "sidecars end in reverse",
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
			tell: func(h *host) {
				h.await("Running, one: ready, two: ready, main: ready")
				for _, up := range []string{"one: up", "two: up", "main: up"} {
					h.awaitSaid(up) // in any order: a sidecar without a startup probe is started before its first log line
				}
				ups := h.said()[:3]
				require.ElementsMatch(h.t, []string{"one: up", "two: up", "main: up"}, ups)
				h.remove(60)
				h.awaitOnce("Succeeded, one: exited 0, two: exited 0, main: exited 0")
				h.requireSaid(append(ups, "main: term", "main: end", "two: term", "two: end", "one: term", "one: end")...)
			},
		},
		orphanScenario(),
		evictionScenario(),
	}
}

// evictionScenario is the eviction of a pod: Evict returns when the pod is down. An agent that is killed meanwhile continues, if
// it has a directory for records.
func evictionScenario() podScenario {
	return podScenario{
		name: "the pod is evicted",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.sh("main", stays+"echo up; "+endless))
		},
		tell: func(h *host) {
			h.awaitUp("main")
			if h.restart && h.podRoot == "" {
				return
			}
			evicted := time.Now()
			h.evict(podstatus.Eviction{Reason: "Evicted", Message: "low on memory", Grace: 3 * time.Second})
			h.awaitOnce("Failed, Evicted, main: exited 137")
			h.requireSaid("main: up", "main: term")
			h.requireBetween(3, evicted, h.end("main").FinishedAt.Time)
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
		assert.NoError(t, r.Evict(h.t.Context(), uid, e), h.account())
	}, waitLimit, 100*time.Millisecond)
}

// preStopScenario is a hook that takes longer than the grace period. The container then has two more seconds.
func preStopScenario() podScenario {
	return podScenario{
		name: "preStop takes longer than the grace period",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.ends("touch $SHARED/bye; sleep 3600"))
		},
		tell: func(h *host) {
			h.awaitUp("main")
			removed := time.Now()
			h.remove(3)
			h.awaitOnce("Failed, main: exited 137")
			h.requireSaid("main: up", "main: bye", "main: term")
			h.requireBetween(3, removed, h.when("main: term"))
			h.requireBetween(3+2, removed, h.end("main").FinishedAt.Time)
		},
	}
}

// orphanScenario is an orphaned pod: its preStop hook runs.
func orphanScenario() podScenario {
	return podScenario{
		name: "the pod is orphaned",
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.ends("touch $SHARED/bye; sleep 1"))
		},
		tell: func(h *host) {
			h.awaitUp("main")
			h.mu.Lock()
			h.pod = nil
			h.mu.Unlock()
			h.reboot(0)
			h.awaitSaid("main: term") // its logs are removed with it
			h.requireSaid("main: up", "main: bye", "main: term")
		},
	}
}

// ends returns a container that runs until it is stopped, and logs when its preStop hook has created the file bye.
func (h *host) ends(preStop string) corev1.Container {
	c := h.sh("main", "("+awaitFile("bye")+"echo bye) & "+stays+"echo up; "+endless)
	c.Lifecycle = &corev1.Lifecycle{PreStop: h.hook(preStop)}
	return c
}

// awaitUp waits until the only container of a pod is reported as running and has logged so.
func (h *host) awaitUp(container string) {
	h.t.Helper()
	h.await("Running, " + container + ": ready")
	h.awaitSaid(container + ": up")
}

// requireBetween requires at least some seconds between two times. Restarts and a busy machine make it longer, so the first time
// is that of an action of the test, not of a log line. A second is allowed for truncated times.
func (h *host) requireBetween(seconds float64, from, to time.Time) {
	h.t.Helper()
	require.Greater(h.t, to.Sub(from).Seconds(), seconds-1, h.account())
}
