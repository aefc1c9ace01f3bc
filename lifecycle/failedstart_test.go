// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// slowPullFailure has all images except "missing", whose pull fails after a while and is then not retried for 5 minutes.
type slowPullFailure time.Duration

func (s slowPullFailure) Ensure(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ *cri.SandboxConfig) (cri.Image, error) {
	if c.Image != "missing" {
		return cri.Image{ID: c.Image}, nil
	}
	time.Sleep(time.Duration(s))
	return cri.Image{}, &podstatus.StartError{Reason: "ErrImagePull", Err: errors.New("no"), Retry: time.Now().Add(5 * time.Minute)}
}

// A container whose variables expand without limit waits, and other pods run. In a previous version the expansion crashed
// the agent.
func TestExponentialVariablesFailOneContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		grows := podtest.Pod("grows")
		grows.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A0", Value: "0123456789"}}
		for i := range 9 {
			grows.Spec.Containers[0].Env = append(grows.Spec.Containers[0].Env, corev1.EnvVar{
				Name: fmt.Sprintf("A%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 10),
			})
		}
		n.set(grows, podtest.Pod("good"))
		time.Sleep(time.Second)
		require.Equal(t, "CreateContainerConfigError", n.reason("grows"))
		require.Contains(t, n.errors(), `spec.containers[0].env[5].value: Too long: variable "A5" may not be more than 131071 bytes`)
		require.Equal(t, corev1.PodRunning, n.phase("good"))
	})
}

// A container that cannot be started does not delay the deadline of its pod, the restart of another container, or a change
// of the failing container.
func TestFailedStartDelaysNoDeadlineRestartOrChange(t *testing.T) {
	tests := map[string]struct {
		pull   time.Duration
		script func(*cri.ContainerConfig) critest.Script
		change func(n *node, pod *corev1.Pod)
		await  func(n *node) bool
		within time.Duration
	}{
		"deadline": {
			change: func(n *node, pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(30)); n.set(pod) },
			await:  func(n *node) bool { return n.phase("a") == corev1.PodFailed },
			within: 31 * time.Second,
		},
		"crash loop of another container": {
			script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 1)}),
			await:  func(n *node) bool { return ops(n.rt, "StartContainer") == 4 }, // after 0, 1, 12 and 33 s
			within: 35 * time.Second,
		},
		"exit of another container during the attempt": {
			pull: 30 * time.Second,
			script: func(c *cri.ContainerConfig) critest.Script {
				if c.Attempt == 0 {
					return critest.ExitAfter(10*time.Second, 1)
				}
				return critest.Script{}
			},
			await:  func(n *node) bool { return ops(n.rt, "StartContainer") == 2 },
			within: 41 * time.Second,
		},
		"change during the attempt": {
			pull: 30 * time.Second,
			change: func(n *node, pod *corev1.Pod) {
				time.Sleep(10 * time.Second)
				pod.Spec.Containers[1].Image = "busybox"
				n.set(pod)
			},
			await:  func(n *node) bool { return n.phase("a") == corev1.PodRunning },
			within: 31 * time.Second,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: tt.script})
				n := startAgent(t, rt, rt, lifecycle.Options{Images: slowPullFailure(tt.pull)})
				pod := podtest.Pod("a", "main", "other")
				pod.Spec.Containers[1].Image = "missing"
				began := time.Now()
				n.set(pod)
				if tt.change != nil {
					tt.change(n, pod)
				}
				for !tt.await(n) && time.Since(began) < time.Hour {
					time.Sleep(100 * time.Millisecond)
				}
				assert.LessOrEqual(t, time.Since(began), tt.within)
			})
		})
	}
}

// A status that an API server sends back does not shorten a back-off.
func TestStatusEchoKeepsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		attempts := 0
		f := &critest.Faults{Runtime: rt, RunSandboxFunc: func(context.Context, cri.Runtime, *cri.SandboxConfig) (string, error) {
			attempts++
			return "", fmt.Errorf("attempt %d failed", attempts)
		}}
		n := startAgent(t, rt, f, lifecycle.Options{Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		pod := sizedPod(t, 1, "cpu=0.5/1")
		n.set(pod)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			pod.Status = n.status("a")
			sent, err := json.Marshal(pod)
			require.NoError(t, err)
			pod = &corev1.Pod{}
			require.NoError(t, json.Unmarshal(sent, pod))
			n.set(pod)
		}
		assert.LessOrEqual(t, attempts, 10, "attempts have a back-off of 1, 2, 4, 8 and then 10 s")
	})
}

// After a failed sync whose result cannot be observed, the status is not that from before a container has exited.
func TestStatusKeepsExitAfterFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"first": critest.ExitAfterStop(time.Second, 0), "second": critest.IgnoreTERM(),
		})})
		var fails atomic.Bool
		via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
			if fails.Load() && (op == "StopPodSandbox" || op == "ContainerStatus") {
				return errors.New("no such file")
			}
			return call(ctx)
		}}
		n := startAgent(t, rt, via, lifecycle.Options{})
		pod := podtest.Pod("a", "first", "second")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.set(pod)
		time.Sleep(time.Second)
		go func() { _ = n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(5*time.Second)) }()
		time.Sleep(3 * time.Second)
		n.requireStatus("a", "Running, first: exited 0, second: ready")
		fails.Store(true)
		time.Sleep(3 * time.Second)
		require.Contains(t, n.errors(), "no such file")
		n.requireStatus("a", "Running, first: exited 0, second: ready")
		fails.Store(false)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, Evicted, first: exited 0, second: exited 137")
	})
}
