// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// instance returns a container instance in sandbox s0. Its ID consists of its name and attempt.
func instance(name string, attempt uint32, state cri.ContainerState, changes ...func(c *cri.Container)) cri.Container {
	c := cri.Container{ID: fmt.Sprint(name, "-", attempt), Name: name, Attempt: attempt, State: state, SandboxID: "s0"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func exit(code int32) func(c *cri.Container) { return func(c *cri.Container) { c.ExitCode = code } }

func ofGeneration(text string) func(c *cri.Container) {
	return func(c *cri.Container) { c.Annotations = map[string]string{podview.AnnotationGeneration: text} }
}

func TestGenerationOf(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0": 0, "1": 1, "12": 12, "x": 0, "1.5": 0} {
		c := instance("main", 0, cri.ContainerRunning, ofGeneration(text))
		assert.Equal(t, want, podview.GenerationOf(&c), "%q", text)
	}
	assert.Zero(t, podview.GenerationOf(&cri.Container{}))
}

// A container that exits with code 88 requests a restart of all containers. Each case is the observed pod.
func TestRestartAllGeneration(t *testing.T) {
	const running, exited = cri.ContainerRunning, cri.ContainerExited
	tests := map[string]struct {
		containers  []cri.Container
		generation  int
		restartsAll bool
		newest      map[string]string // IDs of the newest instances; other containers have none
	}{
		"no container": {},
		"no restart requested": {
			containers: []cri.Container{instance("main", 0, running), instance("side", 0, exited, exit(88))},
			newest:     map[string]string{"main": "main-0", "side": "side-0"}, // side has no rule
		},
		"restart requested": {
			containers: []cri.Container{instance("main", 0, exited, exit(88)), instance("side", 0, running)},
			generation: 1, restartsAll: true,
		},
		"restart requested by init container": {
			containers: []cri.Container{instance("setup", 0, exited, exit(88))},
			generation: 1, restartsAll: true,
		},
		"restart in progress": {
			containers: []cri.Container{
				instance("main", 0, exited, exit(88)), instance("side", 0, running), instance("main", 1, running, ofGeneration("1")),
			},
			generation: 1, newest: map[string]string{"main": "main-1"},
		},
		"restart in progress, requesting container not created": {
			containers: []cri.Container{instance("main", 0, exited, exit(88)), instance("side", 1, running, ofGeneration("1"))},
			generation: 1, newest: map[string]string{"side": "side-1"},
		},
		"restart complete": {
			containers: []cri.Container{instance("main", 1, running, ofGeneration("1")), instance("side", 1, running, ofGeneration("1"))},
			generation: 1, newest: map[string]string{"main": "main-1", "side": "side-1"},
		},
		"second restart requested": {
			containers: []cri.Container{instance("main", 1, exited, exit(88), ofGeneration("1")), instance("side", 1, running, ofGeneration("1"))},
			generation: 2, restartsAll: true,
		},
		"exit code without rule": {
			containers: []cri.Container{instance("main", 1, exited, exit(1), ofGeneration("1")), instance("side", 1, running, ofGeneration("1"))},
			generation: 1, newest: map[string]string{"main": "main-1", "side": "side-1"},
		},
	}
	pod := podtest.Pod("a", "main", "side")
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup")}
	for _, c := range []*corev1.Container{&pod.Spec.InitContainers[0], &pod.Spec.Containers[0]} {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []corev1.ContainerRestartRule{rule(restartAll, in, 88)}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := podview.New(pod, cri.Pod{Containers: tt.containers})
			require.Equal(t, tt.generation, v.Generation)
			require.Equal(t, tt.restartsAll, v.RestartsAll)
			newest := map[string]string{}
			for _, name := range []string{"setup", "main", "side"} {
				if c := v.Newest(name); c != nil {
					newest[name] = c.ID
				}
			}
			if tt.newest == nil {
				tt.newest = map[string]string{}
			}
			require.Equal(t, tt.newest, newest)
		})
	}
}

func TestNewestInSandbox(t *testing.T) {
	elsewhere := func(c *cri.Container) { c.SandboxID = "s1" }
	pod := podtest.Pod("a", "main", "side")
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup")}
	v := podview.New(pod, cri.Pod{Containers: []cri.Container{
		instance("setup", 0, cri.ContainerExited, elsewhere), instance("main", 0, cri.ContainerExited), instance("main", 1, cri.ContainerRunning, elsewhere),
	}})
	require.Nil(t, v.NewestInSandbox("main", "s0"), "the newest instance is in another sandbox")
	require.Equal(t, "main-1", v.NewestInSandbox("main", "s1").ID)
	require.Nil(t, v.NewestInSandbox("side", "s1"))
	require.True(t, v.HasInitialized("s1"))
	require.False(t, v.HasInitialized("s0"), "a new sandbox must be initialized again")

	v = podview.New(pod, cri.Pod{Containers: []cri.Container{instance("setup", 0, cri.ContainerExited)}})
	require.False(t, v.HasInitialized("s0"), "an exited init container alone does not show that the sandbox is initialized")
	v = podview.New(pod, cri.Pod{Containers: []cri.Container{instance("side", 0, cri.ContainerCreated)}})
	require.True(t, v.HasInitialized("s0"), "a created regular container shows that the sandbox is initialized")
}

func TestIsRunningAndIsTerminated(t *testing.T) {
	tests := map[string]struct {
		sandbox             cri.SandboxState
		container           cri.ContainerState
		running, terminated bool
	}{
		"running":                    {cri.SandboxReady, cri.ContainerRunning, true, false},
		"running, sandbox not ready": {cri.SandboxNotReady, cri.ContainerRunning, true, false},
		"unknown":                    {cri.SandboxReady, cri.ContainerUnknown, false, false},
		"unknown, sandbox not ready": {cri.SandboxNotReady, cri.ContainerUnknown, false, false},
		"exited, sandbox ready":      {cri.SandboxReady, cri.ContainerExited, false, false},
		"exited":                     {cri.SandboxNotReady, cri.ContainerExited, false, true},
		"created, sandbox ready":     {cri.SandboxReady, cri.ContainerCreated, false, false},
		"created, sandbox not ready": {cri.SandboxNotReady, cri.ContainerCreated, false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := cri.Pod{
				Sandboxes:  []cri.Sandbox{{ID: "s0", State: tt.sandbox}},
				Containers: []cri.Container{instance("main", 0, cri.ContainerExited), instance("main", 1, tt.container)},
			}
			assert.Equal(t, tt.running, podview.IsRunning(p))
			assert.Equal(t, tt.terminated, podview.IsTerminated(p))
		})
	}
	assert.False(t, podview.IsRunning(cri.Pod{}))
	assert.True(t, podview.IsTerminated(cri.Pod{}))
}

func TestAsUnstarted(t *testing.T) {
	const why = "failed to start containerd task: context canceled"
	message := func(text string) func(c *cri.Container) {
		return func(c *cri.Container) { c.ExitCode, c.Message = 128, text }
	}
	ran := func(c *cri.Container) { c.StartedAt = time.Unix(1, 0) }
	tests := map[string]struct {
		c         cri.Container
		unstarted bool
	}{
		"start cancelled": {instance("main", 0, cri.ContainerExited, message(why)), true},
		"shim killed": {instance("main", 0, cri.ContainerExited, message(
			"failed to create containerd task: failed to start shim: shim killed after context canceled: signal: killed")), true},
		"runtime killed during feature query": {instance("main", 0, cri.ContainerExited, message(
			`failed to create containerd task: failed to run [/bin/containerd-shim-runc-v2 -info]: signal: killed (stderr: "")`)), true},
		"program not found":   {instance("main", 0, cri.ContainerExited, message("exec: no such file")), false},
		"container ran":       {instance("main", 0, cri.ContainerExited, message(why), ran), false},
		"container running":   {instance("main", 0, cri.ContainerRunning, message(why)), false},
		"message with prefix": {instance("main", 0, cri.ContainerExited, message(why+" by the user")), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			read := cri.Pod{Containers: []cri.Container{instance("side", 0, cri.ContainerRunning), tt.c}}
			before := []cri.Container{read.Containers[0], read.Containers[1]}
			p := podview.AsUnstarted(read)
			require.Equal(t, before, read.Containers, "AsUnstarted does not modify its argument")
			require.Equal(t, before[0], p.Containers[0])
			want := tt.c
			if tt.unstarted {
				want.State, want.SandboxID = cri.ContainerCreated, ""
			}
			require.Equal(t, want, p.Containers[1])
		})
	}
}
