// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// scenario is a pod, the behavior of its containers, and events at given times.
type scenario struct {
	pod    func() *corev1.Pod
	script func(c *cri.ContainerConfig) critest.Script
	probed bool    // there are too many probe commands to kill the agent at each
	events []event // in order
	end    string  // short form of the status five minutes later; empty: the pod is removed
}

type event struct {
	after time.Duration
	do    func(rt *critest.Runtime, pod *corev1.Pod) *corev1.Pod // returns the next desired pod, or nil
}

func changeImage(tag string) event {
	return event{3 * time.Second, func(_ *critest.Runtime, pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = tag
		return pod
	}}
}

func exitContainer(container string, code int32) event {
	return event{3 * time.Second, func(rt *critest.Runtime, pod *corev1.Pod) *corev1.Pod {
		_ = rt.Kill("uid-a/"+container, code)
		return pod
	}}
}

func removePod() event {
	return event{3 * time.Second, func(*critest.Runtime, *corev1.Pod) *corev1.Pod { return nil }}
}

// newExamplePod returns a function that creates an example pod of a kind, with these containers.
func newExamplePod(policy corev1.RestartPolicy, kind string, containers ...string) func() *corev1.Pod {
	return func() *corev1.Pod {
		pod := podtest.Pod("a", containers...)
		pod.Spec.RestartPolicy = policy
		podtest.ExamplePods()[kind](pod)
		podapi.Default(pod)
		return pod
	}
}

// initScripts returns scripts for containers: init containers succeed after a second, setup0 after some failures, work
// completes after a minute, and all others run until they are stopped.
func initScripts(failures uint32) func(c *cri.ContainerConfig) critest.Script {
	return func(c *cri.ContainerConfig) critest.Script {
		switch {
		case c.Name == "setup0" && c.Attempt < failures:
			return critest.ExitAfter(time.Second, 1)
		case c.Name == "setup0", c.Name == "setup1":
			return critest.ExitAfter(time.Second, 0)
		case c.Name == "work":
			return critest.ExitAfter(time.Minute, 0)
		}
		return critest.ExitAfterStop(time.Second, 0)
	}
}

var scenarios = map[string]scenario{
	"regular containers": {pod: newExamplePod(corev1.RestartPolicyAlways, "plain", "serve", "serve2"), script: initScripts(0), end: "Running, serve: ready, serve2: ready"},
	"init container fails twice": {
		pod: newExamplePod(corev1.RestartPolicyAlways, "init containers", "serve"), script: initScripts(2),
		end: "Running, setup0: exited 0 x2, setup1: exited 0, serve: ready",
	},
	"init container fails permanently": {
		pod: newExamplePod(corev1.RestartPolicyNever, "init containers", "serve"), script: initScripts(2),
		end: "Failed, setup0: exited 1, setup1: PodInitializing, serve: PodInitializing",
	},
	"sidecars outlive the job": {
		pod: newExamplePod(corev1.RestartPolicyOnFailure, "sidecar", "work"), script: initScripts(0),
		end: "Succeeded, proxy0: exited 0, setup1: exited 0, proxy2: exited 0, work: exited 0",
	},
	"probes": {
		pod: newExamplePod(corev1.RestartPolicyAlways, "probes", "serve"), script: initScripts(0), probed: true, end: "Running, proxy0: ready, serve: ready",
	},
	"hooks": {
		pod: newExamplePod(corev1.RestartPolicyAlways, "hooks", "serve", "serve2"), script: initScripts(0), end: "Running, serve: ready, serve2: ready",
	},
	"job fails once": {
		pod: newExamplePod(corev1.RestartPolicyOnFailure, "hooks", "work"),
		script: func(c *cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(time.Second, 1-int32(min(c.Attempt, 1)))
		},
		end: "Succeeded, work: exited 0 x1",
	},
	"image changes": {
		pod: newExamplePod(corev1.RestartPolicyAlways, "hooks", "serve"), script: initScripts(0), events: []event{changeImage("busybox:2")},
		end: "Running, serve: ready x1",
	},
	"container requests a restart of all containers": {
		pod: newExamplePod(corev1.RestartPolicyNever, "rules", "serve", "serve2"), script: initScripts(0), events: []event{exitContainer("serve", 88)},
		end: "Running, serve: ready x1, serve2: ready x1",
	},
	"sandbox is killed": {
		pod: newExamplePod(corev1.RestartPolicyAlways, "init containers", "serve"), script: initScripts(0),
		events: []event{{10 * time.Second, func(rt *critest.Runtime, pod *corev1.Pod) *corev1.Pod {
			_ = rt.Kill("uid-a-0", 0)
			return pod
		}}},
		end: "Running, setup0: exited 0 x1, setup1: exited 0 x1, serve: ready x1",
	},
	"pod is removed": {pod: newExamplePod(corev1.RestartPolicyAlways, "sidecar", "serve"), script: initScripts(0), events: []event{removePod()}},
}

// TestAgentKilledAtAnyCallReachesSameStatus runs each scenario repeatedly, and kills the agent before or after each of its
// calls to the runtime, one call later each time. The restarted agent must reach the expected status.
func TestAgentKilledAtAnyCallReachesSameStatus(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			total := 0
			synctest.Test(t, func(t *testing.T) { total = scenario.run(t, 0, false) })
			require.Positive(t, total)
			for n := 1; n <= total; n++ {
				for _, after := range []bool{false, true} {
					t.Run(fmt.Sprint("call ", n, " after ", after), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { scenario.run(t, n, after) })
					})
				}
			}
		})
	}
}

// run runs a scenario with an agent that is killed at its nth call; zero: never. It returns the number of calls.
func (s scenario) run(t *testing.T, n int, after bool) (calls int) {
	var mu sync.Mutex            // guards calls, hookRan, last and the agent
	hookRan := map[string]bool{} // container instances whose postStart hook has run
	rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
		script := s.script(c)
		script.Exec = func(_ context.Context, cmd []string) (cri.ExecResult, error) {
			mu.Lock()
			defer mu.Unlock()
			hookRan[fmt.Sprint(c.Labels[cri.LabelPodUID], "/", c.Name, "/", c.Attempt)] = cmd[0] == "hello"
			return cri.ExecResult{}, nil
		}
		return script
	}})
	dir := t.TempDir()
	groups := &podCgroups{has: map[string]bool{}}
	var last *corev1.PodStatus
	var agent *killableAgent
	write := func(ctx context.Context, op, _ string, call func(context.Context) error) error {
		if op == "ExecSync" && s.probed {
			return call(ctx)
		}
		mu.Lock()
		calls++
		doomed := calls == n
		mu.Unlock()
		if doomed {
			if after {
				_ = call(ctx)
			}
			agent.kill()
			return errKilled
		}
		return call(ctx)
	}
	status := func(_ *corev1.Pod, st *corev1.PodStatus) { mu.Lock(); defer mu.Unlock(); last = st }
	pod := s.pod()
	desired := []*corev1.Pod{pod}
	around := environment{write: write, status: status, groups: groups, latency: func(string, string) time.Duration { return 20 * time.Millisecond }}
	agent = newKillableAgent(t, critest.SummaryRuntime{Runtime: rt}, dir, around)
	agent.set(t, desired)
	pass := func(d time.Duration) {
		for range d / (100 * time.Millisecond) {
			time.Sleep(100 * time.Millisecond)
			if agent.dead.Load() {
				agent.stop()
				agent = newKillableAgent(t, critest.SummaryRuntime{Runtime: rt}, dir, around)
				agent.set(t, desired)
			}
		}
	}
	for _, e := range s.events {
		pass(e.after)
		if pod = e.do(rt, pod); pod == nil {
			desired = nil
		} else {
			desired = []*corev1.Pod{pod}
		}
		agent.set(t, desired)
	}
	pass(5 * time.Minute)
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	for _, c := range snap.Containers {
		if c.State == cri.ContainerRunning {
			require.True(t, groups.isLimited(c.PodUID), "%s runs while the pod has no CPU quota", c.ID)
		}
		if spec := podtest.Find(s.pod().Spec.Containers, c.Name); c.State == cri.ContainerRunning && spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
			require.True(t, hookRan[instanceName(c.PodUID, c.Name, c.ID)], "%s runs, but its postStart hook has not run", c.ID)
		}
	}
	if s.end != "" {
		require.Equal(t, s.end, podtest.Describe(*last))
	} else {
		require.Empty(t, snap.Sandboxes)
		require.Empty(t, snap.Containers)
		if n == 0 { // an agent that is killed after its last call leaves files for the garbage collection
			require.Empty(t, podDirs(t, filepath.Join(dir, "pods")))
		}
	}
	return calls
}
