// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/pleg"
)

// Tests of the record on disk: state that a restarted agent cannot read from the runtime.

// losePod makes the runtime lose a pod with its containers.
func losePod(t *testing.T, rt *critest.Runtime, sandboxID string) {
	t.Helper()
	require.NoError(t, rt.StopSandbox(t.Context(), sandboxID))
	require.NoError(t, rt.RemoveSandbox(t.Context(), sandboxID))
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, snap.Containers)
}

// A completed job of a manifest is not run again, although no API server has its status.
func TestCompletedPodNotRunAgainAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 0)})})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		job := podtest.Pod("job")
		job.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		n := startAgent(t, rt, rt, o)
		n.set(job)
		time.Sleep(time.Minute)
		n.requireStatus("job", "Succeeded, main: exited 0")
		began := n.status("job").StartTime
		n.stop()

		losePod(t, rt, "uid-job-0")
		n = startAgent(t, rt, rt, o)
		n.set(job)
		time.Sleep(time.Minute)
		n.requireStatus("job", "Succeeded, main: exited 0")
		require.True(t, began.Equal(n.status("job").StartTime))
		require.Equal(t, 1, ops(rt, "CreateContainer"))

		n.set() // a new pod with this UID
		time.Sleep(time.Minute)
		n.set(job)
		time.Sleep(time.Minute)
		n.requireStatus("job", "Succeeded, main: exited 0")
		require.Equal(t, 2, ops(rt, "CreateContainer"))
	})
}

// A container that ran and does not exist any more counts as a restart.
func TestLostPodRestartsWithRestartCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
		n.stop()

		losePod(t, rt, "uid-a-0")
		n = startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready x1")
		last := n.status("a").ContainerStatuses[0].LastTerminationState.Terminated
		require.Equal(t, podstatus.ReasonStatusUnknown, last.Reason)
	})
}

// A postStart hook that ran when the agent was killed runs again.
func TestPostStartHookRunsAgainAfterAgentCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := 0
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(ctx context.Context, _ []string) (cri.ExecResult, error) {
				hooks++
				if hooks == 1 {
					return cri.ExecResult{}, critest.Hang(ctx)
				}
				return cri.ExecResult{}, nil
			}}
		}})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		pod := podtest.Pod("a", "main", "second")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		n := startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Pending, main: ready, second: ContainerCreating")
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready, second: ready")
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Hour)
		require.Equal(t, 2, hooks)
		require.Equal(t, 2, ops(rt, "CreateContainer"))
	})
}

// Memory requests are stored in the record, because no runtime reports them.
func TestMemoryRequestKeptAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(sizedPod(t, 1, "memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "memory=48Mi/64Mi"))
		time.Sleep(time.Second)
		require.Equal(t, 1, ops(rt, "UpdateContainerResources"))
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(sizedPod(t, 2, "memory=48Mi/64Mi"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, ops(rt, "UpdateContainerResources"), "restarted agent does not repeat the resize")
		require.Equal(t, "memory=48Mi/64Mi", resizeOf(n.status("a")))
	})
}

// Pod-level resources are stored in the record, because no container has them.
func TestPodLevelResizeAppliedAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Cgroups: tree}
		sized := func(cpu string) *corev1.Pod {
			pod := sizedPod(t, 1, "cpu=250m/500m")
			pod.Spec.Resources = new(podtest.ParseRequirements([]string{"cpu=" + cpu}))
			return pod
		}
		n := startAgent(t, rt, rt, o)
		n.set(sized("500m/1"))
		time.Sleep(time.Second)
		require.Empty(t, tree.takeCalls())
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(sized("1/2"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"a"}, tree.takeCalls(), "the pod cgroup is resized once")
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(sized("1/2"))
		time.Sleep(10 * time.Minute)
		require.Empty(t, tree.takeCalls())
	})
}

// A damaged record loses only its own state.
func TestDamagedRecordLosesItsStateOnly(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "truncated": `{"version":1,"sta`, "newer version": `{"version":2}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				var log bytes.Buffer
				o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				n := startAgent(t, rt, rt, o)
				n.set(podtest.Pod("a"))
				time.Sleep(time.Second)
				n.stop()
				path := filepath.Join(o.Dirs.Pods, "uid-a", "record.json")
				require.NoError(t, os.WriteFile(path, []byte(content), 0o600))

				n = startAgent(t, rt, rt, o)
				n.set(podtest.Pod("a"))
				time.Sleep(time.Second)
				n.requireStatus("a", "Running, main: ready")
				n.stop()
				require.Equal(t, 1, ops(rt, "CreateContainer"))
				require.Contains(t, log.String(), path)
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Contains(t, string(data), `"phase":"Running"`, "the record is written again")
			})
		})
	}
}

// A pod runs although its record cannot be written.
func TestPodRunsWithoutWritableRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Minute, 0)})})
		var log bytes.Buffer
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		path := filepath.Join(o.Dirs.Pods, "uid-a", "record.json")
		require.NoError(t, os.MkdirAll(path, 0o700))
		pod := podtest.Pod("a")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n := startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(2 * time.Minute)
		n.requireStatus("a", "Succeeded, main: exited 0")
		require.NoError(t, os.Remove(path))
		time.Sleep(2 * time.Minute)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(data), `"phase":"Succeeded"`, "the record is written once this is possible")
		n.stop()
		require.Contains(t, log.String(), path)
	})
}

// Directories of orphaned pods are removed once all sources have reported.
func TestDirectoriesOfOrphanedPodsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Sources: []string{"test", "other"}}
		for _, path := range []string{"uid-a/record.json", "former/record.json", "former/etc-hosts", "foreign/file"} {
			path = filepath.Join(o.Dirs.Pods, path)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(`{"version":1}`), 0o600))
		}
		dirs := func() []string { return podDirs(t, o.Dirs.Pods) }
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"foreign", "former", "uid-a"}, dirs(), "directories are kept while a source has not reported")
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "other"}))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"foreign", "uid-a"}, dirs())
	})
}

// A terminal phase that another program has set at the API server is accepted at any time.
func TestTerminalPhaseOfAPIServerAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		pod := podtest.Pod("a")
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/served"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		n.set(pod)
		time.Sleep(time.Second)
		assert.Equal(t, "False ReadinessGatesNotReady", podtest.ConditionOf(n.status("a"), corev1.PodReady))

		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/served", Status: corev1.ConditionTrue})
		n.set(pod)
		time.Sleep(time.Second)
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), corev1.PodReady))
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), "example.com/served"))

		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, Evicted, main: exited 143")
	})
}

// An agent that starts without its API server keeps the phase and conditions that other programs have set.
func TestForeignPhaseAndConditionsKeptAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		pod := podtest.Pod("a")
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/served"}}
		stored := pod.DeepCopy()
		pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/served", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		n := startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Second)
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(stored)
		time.Sleep(time.Second)
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), corev1.PodReady))
	})
}

// delayedObserver is an observer that delays the observation of a pod.
type delayedObserver struct {
	*pleg.Generator
	release chan struct{}
}

func (o *delayedObserver) NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error) {
	if uid != "" {
		select {
		case <-o.release:
		case <-ctx.Done():
			return cri.Pod{}, ctx.Err()
		}
	}
	return o.Generator.NewerThan(ctx, uid, t)
}

// A terminal phase is kept if the next agent gets the deletion of the pod before it has observed it.
func TestDeletedPodKeepsTerminalPhaseBeforeFirstObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(time.Second, 0) }})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(0)))
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
		n.stop()

		observer := &delayedObserver{Generator: pleg.New(rt, pleg.Options{}), release: make(chan struct{})}
		var reported []string
		o.Owner = "test"
		o.Hooks.StatusChanged = func(_ *corev1.Pod, st *corev1.PodStatus) { reported = append(reported, string(st.Phase)+" "+st.Reason) }
		r := newReconciler(t, rt, observer, o)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = observer.Run(ctx) })
		wg.Go(func() { _ = r.Run(ctx) })
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{podtest.Pod("a")}}))
		time.Sleep(time.Second)
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test"}))
		time.Sleep(time.Second)
		require.Empty(t, reported)
		close(observer.release)
		time.Sleep(time.Minute)
		require.Empty(t, r.Pods())
		require.Equal(t, []string{"Failed Evicted"}, slices.Compact(reported))
		cancel()
		wg.Wait()
	})
}
