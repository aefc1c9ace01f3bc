// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"strings"
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
)

// Scenarios of one pod in virtual time. The behavior of containers is scripted by their names, and tests read the status like an
// API user.

func (n *node) status(name string) corev1.PodStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if st := n.statuses[name]; st != nil {
		return *st
	}
	return corev1.PodStatus{}
}

// requireStatus requires the status of a pod, in short form.
func (n *node) requireStatus(name, want string) {
	n.t.Helper()
	synctest.Wait()
	require.Equal(n.t, want, podtest.Describe(n.status(name)), n.errors())
}

// calls returns the container names of an operation's calls in order, and the calls by container name.
func calls(rt *critest.Runtime, op string) (names []string, byName map[string]critest.Call) {
	byName = map[string]critest.Call{}
	for _, c := range rt.Calls(op) {
		name := c.Name[strings.LastIndex(c.Name, "/")+1:]
		names = append(names, name)
		byName[name] = c
	}
	return names, byName
}

func TestInitContainerRetriesWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			switch {
			case c.Name == "setup" && c.Attempt < 2:
				return critest.ExitAfter(time.Second, 1)
			case c.Name == "setup":
				return critest.ExitAfter(time.Second, 0)
			}
			return critest.Script{}
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup"), podtest.Init("check")}
		n.set(pod)
		time.Sleep(500 * time.Millisecond)
		n.requireStatus("a", "Pending, setup: running, check: PodInitializing, main: PodInitializing")
		time.Sleep(2 * time.Second) // setup fails at 1 and 2 s, and then waits for 10 s
		n.requireStatus("a", "Pending, setup: CrashLoopBackOff x1, check: PodInitializing, main: PodInitializing")
		assert.Equal(t, "False ContainersNotInitialized", podtest.ConditionOf(n.status("a"), corev1.PodInitialized))
		time.Sleep(10 * time.Second)
		n.requireStatus("a", "Pending, setup: running x2, check: PodInitializing, main: PodInitializing")
		time.Sleep(time.Second)
		n.requireStatus("a", "Pending, setup: exited 0 x2, check: running, main: PodInitializing")
		require.NoError(t, rt.Kill("a/check", 0))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, setup: exited 0 x2, check: exited 0, main: ready")
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), corev1.PodInitialized))
	})
}

func TestInitContainerFailureFailsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"setup": critest.ExitAfter(time.Second, 1)})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("proxy"), podtest.Init("setup")}
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, proxy: exited 143, setup: exited 1, main: PodInitializing")
	})
}

// A sidecar starts first, runs longer than the job, and is then stopped.
func TestSidecarStoppedAfterJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"main": critest.ExitAfter(time.Minute, 0), "proxy": critest.ExitAfterStop(time.Second, 0),
		})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("job")
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("proxy")}
		n.set(pod)
		time.Sleep(time.Second)
		n.requireStatus("job", "Running, proxy: ready, main: ready")
		started, _ := calls(rt, "StartContainer")
		assert.Equal(t, []string{"proxy", "main"}, started)
		require.NoError(t, rt.Kill("job/proxy", 1))
		time.Sleep(time.Second)
		n.requireStatus("job", "Running, proxy: ready x1, main: ready")
		time.Sleep(time.Minute)
		n.requireStatus("job", "Succeeded, proxy: exited 0 x1, main: exited 0")
	})
}

// A deleted pod stops its regular containers first and its sidecars in reverse order, all in one grace period.
func TestSidecarsStoppedInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"main": critest.ExitAfterStop(time.Second, 0), "one": critest.ExitAfterStop(time.Second, 0), "two": critest.IgnoreTERM(),
		})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("one"), podtest.Sidecar("two")}
		n.set(pod)
		time.Sleep(time.Second)
		n.set()
		time.Sleep(500 * time.Millisecond)
		n.requireStatus("a", "Running, one: ready, two: ready, main: ready")
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, one: ready, two: ready, main: exited 0")
		time.Sleep(4 * time.Second) // the grace period of five seconds has expired, so container two is killed
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
		stopped, by := calls(rt, "StopContainer")
		assert.Equal(t, []string{"main", "two", "one"}, stopped)
		assert.Equal(t, 5*time.Second, by["main"].Grace)
		assert.Equal(t, 4*time.Second, by["two"].Grace)
		assert.Equal(t, 2*time.Second, by["one"].Grace, "last sidecar gets the minimum grace period")
	})
}

// The time of a preStop hook is part of the grace period. After a hook that uses all of it the container has two more
// seconds.
func TestPreStopHookUsesGracePeriod(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		2 * time.Second: 3 * time.Second,
		time.Hour:       2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			script := critest.IgnoreTERM()
			script.Exec = func(ctx context.Context, cmd []string) (cri.ExecResult, error) {
				assert.Equal(t, []string{"bye"}, cmd)
				select {
				case <-time.After(took):
				case <-ctx.Done():
				}
				return cri.ExecResult{}, ctx.Err()
			}
			rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return script }})
			n := startAgent(t, rt, rt, lifecycle.Options{})
			pod := podtest.Pod("a")
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: podtest.Exec("bye")}
			n.set(pod)
			time.Sleep(time.Second)
			n.set()
			time.Sleep(time.Minute)
			require.Equal(t, []string{"a"}, n.removedPods())
			require.Len(t, rt.Calls("StopContainer"), 1)
			assert.Equal(t, want, rt.Calls("StopContainer")[0].Grace)
			assert.Equal(t, 1, ops(rt, "ExecSync"))
		})
	}
}

// A container whose postStart hook fails is stopped, and restarted with its back-off.
func TestFailedPostStartHookRestartsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
			return cri.ExecResult{ExitCode: 3, Stderr: []byte("no way")}, nil
		}}
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return script }})
		n := startAgent(t, rt, rt, lifecycle.Options{Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		n.set(pod)
		time.Sleep(5 * time.Second) // the first restart was immediate, or up to a second after its exit
		n.requireStatus("a", "Running, main: CrashLoopBackOff x1")
		assert.Contains(t, n.history, "a Running PostStartHookError")
		assert.Contains(t, n.errors(), "command 'hello' exited with 3: no way")
		time.Sleep(time.Minute)
		assert.Equal(t, 4, ops(rt, "StartContainer"), "starts at 0, within the next second, and after another 10 and 20 s")
	})
}

// A pod with grace period zero runs no preStop hook, even if its postStart hook has failed.
func TestFailedPostStartHookWithoutGraceRunsNoPreStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(_ context.Context, cmd []string) (cri.ExecResult, error) {
				ran = append(ran, cmd[0])
				return cri.ExecResult{ExitCode: 1}, nil
			}}
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello"), PreStop: podtest.Exec("bye")}
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, main: exited 143")
		require.Equal(t, []string{"hello"}, ran)
	})
}

// A pod that is deleted during an image pull does not wait for the pull.
func TestDeletedPodDoesNotWaitForPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: func(ctx context.Context, _ cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
			<-ctx.Done()
			return cri.Image{}, ctx.Err()
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("gone"), podtest.Pod("deleted"))
		time.Sleep(time.Minute)
		n.requireStatus("gone", "Pending, main: ContainerCreating")
		deleted := podtest.Pod("deleted")
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.set(deleted)
		time.Sleep(time.Second)
		require.Equal(t, []string{"gone"}, n.removedPods())
		sandboxes, containers := n.objects()
		require.Zero(t, sandboxes+containers)
	})
}

// A pod that is deleted before its containers have run fails.
func TestDeletedPodFailsBeforeItRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		n.set(pod)
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.set(pod)
		time.Sleep(10 * time.Second)
		n.requireStatus("a", "Failed, main: exited 137")
		sandboxes, containers := n.objects()
		require.Zero(t, sandboxes+containers)
	})
}

// The grace period of a deleted pod can only be shortened.
func TestGracePeriodOfDeletedPodOnlyShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		with := func(seconds int64) *corev1.Pod {
			pod := podtest.Pod("a")
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &seconds
			return pod
		}
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.set(with(600))
		time.Sleep(time.Second)
		n.set(with(3600))
		time.Sleep(time.Second)
		n.set(with(10))
		time.Sleep(9 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Failed, main: exited 137")
		assert.Empty(t, n.errors())
	})
}

// A pod is torn down with one grace period and one run of its preStop hook, even if it is deleted by several causes.
func TestDeletedPodGetsOneGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := 0
		script := critest.IgnoreTERM()
		script.Exec = func(context.Context, []string) (cri.ExecResult, error) { hooks++; return cri.ExecResult{}, nil }
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return script }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		late, deleted := podtest.Pod("late"), podtest.Pod("deleted")
		late.Spec.ActiveDeadlineSeconds = new(int64(10))
		for _, pod := range []*corev1.Pod{late, deleted} {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
		}
		n.set(late, deleted)
		time.Sleep(10 * time.Second)
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.set(late, deleted)
		time.Sleep(20 * time.Second)
		n.set()
		time.Sleep(9 * time.Second)
		assert.Empty(t, n.removedPods())
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"deleted", "late"}, n.removedPods())
		assert.Equal(t, 2, hooks)
	})
}

// A pod fails after activeDeadlineSeconds, also with a restarted agent.
func TestActiveDeadlineFailsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		limit := int64(60)
		pod.Spec.ActiveDeadlineSeconds = &limit
		n.set(pod)
		time.Sleep(59900 * time.Millisecond)
		n.requireStatus("a", "Running, main: ready")
		time.Sleep(200 * time.Millisecond)
		n.requireStatus("a", "Failed, DeadlineExceeded, main: exited 143")
		n.stop()
		n = startAgent(t, rt, rt, lifecycle.Options{})
		n.set(pod)
		time.Sleep(10 * time.Minute)
		n.requireStatus("a", "Failed, DeadlineExceeded, main: exited 143")
		assert.Equal(t, 1, ops(rt, "StartContainer"))
	})
}

// A terminal phase is published only after all containers have exited, also by a restarted agent.
func TestTerminalPhaseWaitsForContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		root := t.TempDir()
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
		pod := podtest.Pod("a")
		pod.Spec.ActiveDeadlineSeconds, pod.Spec.TerminationGracePeriodSeconds = new(int64(10)), new(int64(60))
		n.set(pod)
		requireActive := func(want int) {
			t.Helper()
			active, _ := n.reconciler.Active()
			require.Len(t, active, want)
		}
		time.Sleep(20 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		require.Equal(t, "False PodFailed", podtest.ConditionOf(n.status("a"), corev1.PodReady), "pod with an expired deadline is not ready")
		requireActive(1)

		n.stop()
		n = startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
		n.set(pod)
		time.Sleep(59 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		requireActive(1)
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Failed, DeadlineExceeded, main: exited 137")
		requireActive(0)
	})
}

func TestEphemeralContainerRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"debug": critest.ExitAfter(time.Minute, 7)})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		pod := podtest.Pod("a")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}, TargetContainerName: "main",
		}}
		n.set(pod)
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready, debug: running")
		time.Sleep(10 * time.Minute)
		n.requireStatus("a", "Running, main: ready, debug: exited 7")
	})
}

// A container requests a restart of all containers by its exit code.
func TestRestartOfAllContainersByExitCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"setup": critest.ExitAfter(time.Second, 0)})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a", "main", "watch")
		never := corev1.ContainerRestartPolicyNever
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup")}
		pod.Spec.Containers[1].RestartPolicy = &never
		pod.Spec.Containers[1].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88},
			},
		}}
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Running, setup: exited 0, main: ready, watch: ready")
		require.NoError(t, rt.Kill("a/watch", 88))
		time.Sleep(500 * time.Millisecond)
		n.requireStatus("a", "Pending, setup: running x1, main: RestartingAllContainers, watch: RestartingAllContainers")
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), corev1.PodInitialized), "pod stays initialized during a restart of all containers")
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Running, setup: exited 0 x1, main: ready x1, watch: ready x1")
		assert.Equal(t, 1, ops(rt, "RunPodSandbox"))
	})
}
