// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// imageFunc is an executor.ImageSource that calls a function.
type imageFunc func(ctx context.Context, c *corev1.Container) (cri.Image, error)

func (f imageFunc) Ensure(ctx context.Context, _ *corev1.Pod, c *corev1.Container, _ *cri.SandboxConfig) (cri.Image, error) {
	return f(ctx, c)
}

// A failed call of a start is recorded as an event, and becomes the waiting reason of the container if there is a sandbox. It
// does not delay independent containers. The next successful attempt clears the reason.
func TestStartErrorsBecomeEventsAndWaitingReasons(t *testing.T) {
	out := errors.New("out of order")
	tests := map[string]struct {
		node    func(s *scene) func(n *executor.Node) // makes a call to the node fail; nil: the runtime fails
		breaks  string                                // failing call to the runtime
		script  critest.Script                        // of container main
		pod     func(pod *corev1.Pod)
		waiting []string
		events  []string
		side    bool // container side runs
	}{
		"cgroup": {
			node: func(s *scene) func(n *executor.Node) {
				return func(n *executor.Node) { n.Cgroups = &podCgroups{s: s, fails: map[string]error{"Ensure": out}} }
			},
			events: []string{"FailedCreatePodContainer!"},
		},
		"sandbox": {
			breaks: "RunPodSandbox",
			events: []string{"FailedCreatePodSandBox!"},
		},
		"sandbox config": {
			pod: func(pod *corev1.Pod) {
				pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = strings.Repeat("h", 60), "s", new(true)
			},
			events: []string{"FailedCreatePodSandBox!"},
		},
		"sandbox status": {
			breaks: "PodSandboxStatus",
			events: []string{"FailedCreatePodSandBox!"},
		},
		"image": {
			node: func(*scene) func(n *executor.Node) {
				return failingImage(&podstatus.StartError{Reason: "ErrImagePull", Err: out})
			},
			waiting: []string{"main: ErrImagePull: out of order"},
			events:  []string{"Failed! main", "Created side uid-a-side-0", "Started side uid-a-side-0"}, side: true,
		},
		"image, error without reason": {
			node:    func(*scene) func(n *executor.Node) { return failingImage(out) },
			waiting: []string{"main: RunContainerError: out of order"},
			events:  []string{"Failed! main", "Created side uid-a-side-0", "Started side uid-a-side-0"}, side: true,
		},
		"container config": {
			pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
					ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "a"},
				}}}
			},
			waiting: []string{"main: CreateContainerConfigError: ..."},
			events:  []string{"Failed! main", "Created side uid-a-side-0", "Started side uid-a-side-0"}, side: true,
		},
		"CreateContainer": {
			breaks: "CreateContainer main", waiting: []string{"main: CreateContainerError: out of order"},
			events: []string{"Failed! main", "Created side uid-a-side-0", "Started side uid-a-side-0"}, side: true,
		},
		"StartContainer": {
			script: critest.FailStart(out), waiting: []string{"main: RunContainerError: StartContainer uid-a-main-0: out of order"},
			events: []string{
				"Created main uid-a-main-0", "Failed! main uid-a-main-0", "Created side uid-a-side-0", "Started side uid-a-side-0",
			}, side: true,
		},
		"postStart hook": {
			pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
			},
			script:  critest.Script{Exec: execTaking(0, 7)},
			waiting: []string{"main: PostStartHookError: ..."},
			events: []string{
				"Created main uid-a-main-0", "Started main uid-a-main-0", "FailedPostStartHook! main uid-a-main-0",
				"Killing main uid-a-main-0", "Created side uid-a-side-0", "Started side uid-a-side-0",
			}, side: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := podtest.Pod("a", "main", "side")
				if tt.pod != nil {
					tt.pod(pod)
				}
				s := newScene(t, pod, setting{scripts: map[string]critest.Script{"main": tt.script}})
				if tt.node != nil {
					tt.node(s)(&s.node)
					s.createExecutor()
				}
				s.setFault(tt.breaks, out)
				require.Error(t, s.execute(t.Context(), s.startActions("main", "side")))
				s.requireWaiting(tt.waiting...)
				s.requireEvents(tt.events...)
				side, ok := s.rt.Container("a/side")
				require.Equal(t, tt.side, ok && side.State == cri.ContainerRunning)
			})
		})
	}
}

// failingImage returns a node change that makes the image of main fail.
func failingImage(err error) func(n *executor.Node) {
	return func(n *executor.Node) {
		n.Images = imageFunc(func(_ context.Context, c *corev1.Container) (cri.Image, error) {
			if c.Name == "main" {
				return cri.Image{}, err
			}
			return critest.NewImage(c.Image, 0), nil
		})
	}
}

// A successful start clears the waiting reason.
func TestWaitingReasonsClearedBySuccessfulStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a", "main", "side"), setting{})
		s.setFault("CreateContainer main", errors.New("out of order"))
		require.Error(t, s.execute(t.Context(), s.startActions("main", "side")))
		s.requireWaiting("main: CreateContainerError: out of order")
		s.setFault("CreateContainer main", nil)
		a := s.startActions("main")
		a.Sandbox, a.SandboxID = nil, "uid-a-0"
		require.NoError(t, s.execute(t.Context(), a))
		s.requireWaiting()
		s.requireCalls("0s CreateContainer main", "0s StartContainer uid-a-main-0")
	})
}

// A container that a previous agent has created or started is not created again.
func TestStartContinuesContainerOfPreviousAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		s := newScene(t, podWithHooks(hooks, "main"), setting{})
		s.setFault("StartContainer", errors.New("the agent dies"))
		require.Error(t, s.execute(t.Context(), s.startActions("main")))
		s.setFault("StartContainer", nil)
		require.Equal(t, cri.ContainerCreated, s.state("main"))

		a := s.startActions("main")
		a.Sandbox, a.SandboxID, a.Start[0].CreatedID = nil, "uid-a-0", "uid-a-main-0"
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, s.execute(ctx, a), "no start with an ended context")
		require.Equal(t, cri.ContainerCreated, s.state("main"))
		require.NoError(t, s.execute(t.Context(), a))
		s.requireCalls("0s StartContainer uid-a-main-0", "0s ExecSync uid-a-main-0")

		a.Start[0].PostStartOnly = true
		require.NoError(t, s.execute(t.Context(), a))
		s.requireCalls("0s ExecSync uid-a-main-0")
	})
}

// The record lists a container whose postStart hook was interrupted by the death of the agent.
func TestPostStartRecordedAsPendingUntilDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		pending := func() []string {
			r := poddir.NewRecorder(poddir.DirOf(root, "uid-a"), "default/a")
			assert.NoError(t, r.Load())
			return r.Get().PostStartPending
		}
		var during []string
		asks := critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
			during = append(during, pending()...)
			return cri.ExecResult{}, nil
		}}
		s := newScene(t, podWithHooks(corev1.Lifecycle{PostStart: podtest.Exec("hello")}, "main", "side"), setting{
			scripts: map[string]critest.Script{"main": asks, "side": asks},
			node:    func(n *executor.Node) { n.PodRoot = root },
		})
		s.startContainers("main", "side")
		require.Equal(t, []string{"uid-a-main-0", "uid-a-side-0"}, during)
		require.Empty(t, pending())
	})
}

// A postStart hook that is cancelled because the agent stops stays pending; its container keeps running.
func TestPostStartStaysPendingWhenAgentStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podWithHooks(corev1.Lifecycle{PostStart: podtest.Exec("hello")}, "main", "side"), setting{
			scripts: map[string]critest.Script{"main": {Exec: execTaking(time.Hour, 0)}},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, s.execute(ctx, s.startActions("main", "side")), context.DeadlineExceeded)
		require.Equal(t, cri.ContainerRunning, s.state("main"))
		require.Equal(t, []string{"uid-a-main-0"}, s.record.Get().PostStartPending)
		s.requireEvents("Created main uid-a-main-0", "Started main uid-a-main-0")
		require.False(t, s.called("CreateContainer side"))
	})
}
