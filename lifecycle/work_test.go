// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// workRecorder records the calls of the hooks for metrics.
type workRecorder struct {
	mu    sync.Mutex
	syncs map[podevents.SyncOp]int
	first time.Duration
	lines []string
}

func (w *workRecorder) hooks() lifecycle.Hooks {
	add := func(format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, fmt.Sprintf(format, args...))
	}
	return lifecycle.Hooks{
		StartAttempted: func(_ cri.PodIdentity, s podevents.ContainerStart) {
			add("%s %s %v", s.Type, s.Container, s.Err == nil)
		},
		Work: lifecycle.WorkHooks{
			SandboxStartAttempted: func(_ cri.PodIdentity, s podevents.SandboxStart) {
				add("sandbox %d %q %v %v %v", s.Attempt, s.RuntimeHandler, s.UserNamespace, s.Took, s.Err == nil)
			},
			PodSynced: func(_ cri.PodIdentity, s podevents.Sync) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.syncs[s.Op]++
				w.first += s.Waited
			},
			SleepTerminated: func(cri.PodIdentity) { add("sleep") },
		},
	}
}

// takeLines returns the lines since the last call.
func (w *workRecorder) takeLines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// WorkHooks are called for sandboxes, containers by type, and syncs by purpose.
func TestWorkHooksCalledPerStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"setup": critest.ExitAfter(0, 0)})})
		var broken atomic.Bool
		broken.Store(true)
		via := faulty{&critest.Faults{Runtime: rt, Around: func(_ context.Context, op, _ string, call func() error) error {
			if op == "RunPodSandbox" {
				time.Sleep(3 * time.Second)
				if broken.Load() {
					return errors.New("out of order")
				}
			}
			return call()
		}}, rt, rt}
		w := &workRecorder{syncs: map[podevents.SyncOp]int{}}
		n := startAgent(t, rt, via, lifecycle.Options{Hooks: w.hooks(), Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		pod := podtest.Pod("a")
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox"}, podtest.Sidecar("proxy")}
		n.set(pod)
		time.Sleep(3500 * time.Millisecond)
		assert.Equal(t, []string{`sandbox 0 "" false 3s false`}, w.takeLines())
		broken.Store(false)
		time.Sleep(30 * time.Second)
		assert.Equal(t, []string{
			`sandbox 0 "" false 3s true`, "init_container setup true", "init_container proxy true", "container main true",
		}, w.takeLines())

		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"version": "2"}
		changed.Generation = 2
		n.set(changed)
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		assert.Empty(t, w.takeLines())
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Equal(t, 1, w.syncs[podevents.SyncCreate])
		assert.Equal(t, 1, w.syncs[podevents.SyncUpdate])
		assert.Equal(t, 1, w.syncs[podevents.SyncTerminated])
		assert.NotZero(t, w.syncs[podevents.SyncPod])
		assert.NotZero(t, w.syncs[podevents.SyncKill])
		assert.Less(t, w.first, time.Second)
	})
}

// SleepTerminated is called for a preStop sleep that is canceled because the agent stops.
func TestSleepTerminatedHookCalledForShortSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		w := &workRecorder{syncs: map[podevents.SyncOp]int{}}
		n := startAgent(t, rt, rt, lifecycle.Options{Hooks: w.hooks()})
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}}}
		n.set(pod)
		time.Sleep(time.Second)
		w.takeLines()
		n.set()
		time.Sleep(time.Second)
		assert.Empty(t, w.takeLines())
		n.stop()
		assert.Equal(t, []string{"sleep"}, w.takeLines())
	})
}
