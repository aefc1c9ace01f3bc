// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
)

// startScenarios test the order and the number of container starts.
func startScenarios() []podScenario {
	return []podScenario{
		{
			name: "init container fails twice",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", "echo up"))
				pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
				pod.Spec.InitContainers = []corev1.Container{
					h.sh("setup", h.countInstances("setup")+"[ $n -ge 3 ]"), h.sh("check", "echo up"),
				}
				return pod
			},
			end:    "Succeeded, setup: exited 0 x2, check: exited 0, main: exited 0",
			logged: []string{"setup: life 1", "setup: life 2", "setup: life 3", "check: up", "main: up"},
		},
		{
			name: "init container fails permanently",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", "echo up"))
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				pod.Spec.InitContainers = []corev1.Container{h.sh("setup", "echo no; exit 4")}
				return pod
			},
			end:    "Failed, setup: exited 4, main: PodInitializing",
			logged: []string{"setup: no"},
		},
		sidecarScenario(),
		postStartScenario(),
		{
			name: "restart rules use exit codes",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(
					h.sh("listed", h.countInstances("listed")+"[ $n = 1 ] && exit 42; exit 7"),
					h.sh("unlisted", h.countInstances("unlisted")+"[ $n = 1 ] && exit 7; exit 42"),
				)
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				for i, operator := range []corev1.ContainerRestartRuleOnExitCodesOperator{
					corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn,
				} {
					addRule(&pod.Spec.Containers[i], corev1.ContainerRestartRuleActionRestart, operator)
				}
				return pod
			},
			end: "Failed, listed: exited 7 x1, unlisted: exited 42 x1",
		},
		restartAllScenario(),
		{
			name: "liveness probe fails",
			pod: func(h *host) *corev1.Pod {
				main := h.sh("main", h.countInstances("main")+"touch $SHARED/started $SHARED/ready $SHARED/alive; "+
					"[ $n = 1 ] && { sleep 2; rm $SHARED/ready $SHARED/alive; }; "+runUntilTerm)
				main.StartupProbe, main.ReadinessProbe, main.LivenessProbe = h.exists("started"), h.exists("ready"), h.exists("alive")
				// On a busy machine both instances may be slow to create their files.
				main.StartupProbe.FailureThreshold, main.LivenessProbe.FailureThreshold = 60, 5
				return h.newPod(main)
			},
			act:    func(h *host) { h.awaitLogged("main: life 2") },
			end:    "Running, main: ready x1",
			logged: []string{"main: life 1", "main: term", "main: life 2"},
		},
	}
}

// A sidecar starts before the job, is restarted while it runs, and terminates after it.
func sidecarScenario() podScenario {
	return podScenario{
		name: "sidecar outlives the job",
		pod: func(h *host) *corev1.Pod {
			pod := h.newPod(h.sh("job", awaitFile("life-proxy")+"echo up; touch $SHARED/job; "+awaitFile("again")+"sleep 1; echo done"))
			pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			proxy := h.sh("proxy", h.countInstances("proxy")+"[ $n = 1 ] && { "+awaitFile("job")+"exit 9; }; "+exitOnTerm+"touch $SHARED/again; "+sleepForever)
			proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = []corev1.Container{proxy}
			return pod
		},
		end:    "Succeeded, proxy: exited 0 x1, job: exited 0",
		logged: []string{"proxy: life 1", "job: up", "proxy: life 2", "job: done", "proxy: term"},
	}
}

// postStartScenario is a hook that fails once. A container whose agent is killed before it gets the error continues, as in the
// kubelet.
func postStartScenario() podScenario {
	return podScenario{
		name: "postStart hook fails",
		pod: func(h *host) *corev1.Pod {
			main := h.sh("main", "("+awaitFile("hello")+"echo hello) & "+exitOnTerm+"echo up; touch $SHARED/up; "+sleepForever)
			main.Lifecycle = &corev1.Lifecycle{
				PostStart: h.hook(awaitFile("up") + "if [ -e $SHARED/failed ]; then touch $SHARED/hello; exit; fi; touch $SHARED/failed; echo no way >&2; exit 3"),
			}
			return h.newPod(main)
		},
		act: func(h *host) {
			if h.restart {
				h.eventually(func() error {
					if st := h.status(); podtest.Describe(st) != "Running, main: ready" && podtest.Describe(st) != "Running, main: ready x1" {
						return fmt.Errorf("status is %q", podtest.Describe(st))
					}
					return nil
				})
				return
			}
			h.await("Running, main: ready x1")
			require.Contains(h.t, h.errors(), "exited with 3: no way")
			require.Contains(h.t, strings.Join(h.history(), "\n"), "main: PostStartHookError")
			h.awaitLogged("main: hello")
			h.requireLogged("main: up", "main: term", "main: up", "main: hello")
		},
	}
}

// One container requests a restart of all containers, including init containers, by its exit code.
func restartAllScenario() podScenario {
	return podScenario{
		name: "one container restarts all",
		pod: func(h *host) *corev1.Pod {
			pod := h.newPod(
				h.sh("main", h.countInstances("main")+ignoreTerm+"touch $SHARED/main; "+sleepForever),
				h.sh("watch", awaitFile("main")+h.countInstances("watch")+"[ $n = 1 ] && exit 42; "+runUntilTerm),
			)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.InitContainers = []corev1.Container{h.sh("setup", h.countInstances("setup")+"rm -f $SHARED/main")}
			addRule(&pod.Spec.Containers[1], corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn)
			return pod
		},
		act: func(h *host) {
			h.awaitLogged("watch: life 2")
			pod, err := h.observed(h.t.Context())
			require.NoError(h.t, err)
			require.Len(h.t, pod.Sandboxes, 1, "the sandbox is not replaced")
		},
		end: "Running, setup: exited 0 x1, main: ready x1, watch: ready x1",
		logged: []string{
			"setup: life 1", "main: life 1", "watch: life 1", "main: term", "setup: life 2", "main: life 2", "watch: life 2",
		},
	}
}

// cutShortScenario is a pod with restart policy Never whose agent is killed while it starts the container. The runtime then
// reports the container as exited, but the pod must not fail.
func cutShortScenario() podScenario {
	return podScenario{
		name: "start is canceled",
		via:  func(client *remote.Client) execRuntime { return &cancelingRuntime{Client: client} },
		pod: func(h *host) *corev1.Pod {
			pod := h.newPod(h.sh("main", "sleep 0.3; echo up"))
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			return pod
		},
		act: func(h *host) {
			h.await("Succeeded, main: exited 0")
			require.True(h.t, h.rt.(*cancelingRuntime).cut.Load())
		},
		end:    "Succeeded, main: exited 0",
		logged: []string{"main: up"},
	}
}

// cancelingRuntime is a runtime whose callers cancel the first start of a container.
type cancelingRuntime struct {
	*remote.Client
	cut atomic.Bool
}

func (r *cancelingRuntime) StartContainer(ctx context.Context, id string) error {
	if r.cut.Load() {
		return r.Client.StartContainer(ctx, id)
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	time.AfterFunc(5*time.Millisecond, cancel)
	err := r.Client.StartContainer(call, id)
	c, statusErr := r.ContainerStatus(ctx, id)
	r.cut.Store(statusErr == nil && c.State == cri.ContainerExited && c.StartedAt.IsZero())
	return err
}

// addRule adds a rule about exit code 42 to a container with restart policy Never.
func addRule(c *corev1.Container, do corev1.ContainerRestartRuleAction, on corev1.ContainerRestartRuleOnExitCodesOperator) {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    do,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: on, Values: []int32{42}},
	}}
}

// exists returns a probe that checks every second whether a file exists.
func (h *host) exists(file string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", h.shared + "/" + file}}},
		PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 2,
	}
}
