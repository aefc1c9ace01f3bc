// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
)

// newRemoteRuntime wraps a runtime so that it is read like containerd: it lists without details, each call takes a while,
// and calls for which hangs returns true hang until their context ends.
func newRemoteRuntime(rt *critest.Runtime, hangs func(op, id string) bool) *critest.Interceptor {
	return &critest.Interceptor{
		Runtime: critest.SummaryRuntime{Runtime: rt},
		Latency: func(string, string) time.Duration { return 300 * time.Millisecond },
		Around: func(ctx context.Context, op, id string, call func(context.Context) error) error {
			if hangs(op, id) {
				return &cri.Error{Op: op, ID: id, Err: critest.Hang(ctx)}
			}
			return call(ctx)
		},
	}
}

// waitingMessage returns the waiting message of the first container of a pod, or "".
func (n *node) waitingMessage(name string) string {
	for _, c := range n.status(name).ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting.Message
		}
	}
	return ""
}

func neverHangs(string, string) bool { return false }

// editedPod returns the pod of an edited manifest: it has the name of pod and another UID.
func editedPod(pod *corev1.Pod, uid string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(uid)
	return pod
}

// requireNoOverlap returns a script whose containers take 8 s to terminate. It fails the test if a container starts while a
// container of another pod runs.
func requireNoOverlap(t *testing.T, rt **critest.Runtime) func(*cri.ContainerConfig) critest.Script {
	return func(*cri.ContainerConfig) critest.Script {
		s := critest.ExitAfterStop(8*time.Second, 0)
		s.Started = func(c cri.Container) {
			snap, err := (*rt).List(context.Background())
			assert.NoError(t, err)
			for _, o := range snap.Containers {
				assert.False(t, o.State == cri.ContainerRunning && o.PodUID != c.PodUID, "%s started beside %s", c.ID, o.ID)
			}
		}
		return s
	}
}

// A static pod whose manifest has changed while no agent ran must not run together with its previous version, which uses the
// same ports and files.
func TestEditedPodWaitsForPreviousVersionAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: requireNoOverlap(t, &rt)})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		n := startAgent(t, rt, newRemoteRuntime(rt, neverHangs), lifecycle.Options{})
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		n.stop()

		n = startAgent(t, rt, newRemoteRuntime(rt, neverHangs), lifecycle.Options{})
		n.set(editedPod(pod, "uid-new"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		c, _ := rt.Container("uid-new/main")
		require.Equal(t, cri.ContainerRunning, c.State)
		_, containers := n.objects()
		require.Equal(t, 1, containers)
	})
}

// A pod waits for its previous version, which cannot be read. Within 10 s it reports the previous pod and the call that
// hangs. It continues to wait.
func TestWaitingPodReportsUnreadablePreviousVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: requireNoOverlap(t, &rt)})
		n := startAgent(t, rt, newRemoteRuntime(rt, neverHangs), lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		n.stop()

		var healed atomic.Bool
		via := newRemoteRuntime(rt, func(op, id string) bool {
			return !healed.Load() && op == "ContainerStatus" && strings.HasPrefix(id, "uid-a-")
		})
		n = startAgent(t, rt, via, lifecycle.Options{})
		n.set(editedPod(podtest.Pod("a"), "uid-new"))
		time.Sleep(10 * time.Second)
		for what, text := range map[string]string{"Hooks.Error": n.errors(), "status": n.waitingMessage("a")} {
			require.Contains(t, text, "default/a", what)
			require.Contains(t, text, "uid-a", what)
			require.Contains(t, text, "ContainerStatus uid-a-main-0", what)
		}
		n.mu.Lock()
		require.Contains(t, n.events, "FailedSync!")
		n.mu.Unlock()
		require.Equal(t, corev1.PodPending, n.phase("a"))

		time.Sleep(time.Hour)
		_, ok := rt.Container("uid-new/main")
		require.False(t, ok, "the new version does not start")
		c, _ := rt.Container("uid-a/main")
		require.Equal(t, cri.ContainerRunning, c.State, "the previous version is not stopped")

		healed.Store(true)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
	})
}

// A waiting pod that is deleted or replaced must not start when the previous version is removed.
func TestWaitingPodDeletedOrReplacedDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: requireNoOverlap(t, &rt)})
		n := startAgent(t, rt, newRemoteRuntime(rt, neverHangs), lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		n.set(pod)
		time.Sleep(time.Minute)
		n.set(editedPod(pod, "uid-second"))
		time.Sleep(4 * time.Second)
		require.Contains(t, n.waitingMessage("a"), "uid-a")
		n.set(editedPod(pod, "uid-third"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		require.Len(t, rt.Calls("StartContainer"), 2, "the second version never starts")
		c, _ := rt.Container("uid-third/main")
		require.Equal(t, cri.ContainerRunning, c.State)
	})
}

// A completed job is not reported as waiting for another pod of its name.
func TestCompletedPodIsNotReportedAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 0)})})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		job := podtest.Pod("a")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		n := startAgent(t, rt, newRemoteRuntime(rt, neverHangs), o)
		n.set(job)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Succeeded, main: exited 0")
		n.stop()
		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
			Pod:    cri.PodIdentity{UID: "uid-former", Name: "a", Namespace: "default"},
			Labels: map[string]string{lifecycle.LabelOwner: "nodeagent"},
		})
		require.NoError(t, err)

		via := newRemoteRuntime(rt, func(op, id string) bool { return op == "PodSandboxStatus" && strings.HasPrefix(id, "uid-former") })
		n = startAgent(t, rt, via, o)
		n.set(job)
		for range 60 {
			time.Sleep(time.Second)
			if n.phase("a") != "" {
				n.requireStatus("a", "Succeeded, main: exited 0")
			}
		}
		require.Equal(t, corev1.PodSucceeded, n.phase("a"))
	})
}

// MayRun is true for pods that the runtime has not listed yet, because the removal of orphaned cgroups kills their
// processes.
func TestMayRunReturnsTrueWhileRuntimeHangs(t *testing.T) {
	for name, hangs := range map[string]func(op, id string) bool{
		"all calls hang":                    func(string, string) bool { return true },
		"lists hang":                        func(op, _ string) bool { return op == "List" },
		"inspections hang":                  func(op, _ string) bool { return op == "ContainerStatus" || op == "PodSandboxStatus" },
		"inspection of one container hangs": func(op, id string) bool { return op == "ContainerStatus" && id == "uid-a-main-0" },
		"the version call hangs":            func(op, _ string) bool { return op == "Version" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				n := startAgent(t, rt, rt, lifecycle.Options{})
				n.set(podtest.Pod("a"))
				time.Sleep(time.Minute)
				n.stop()

				n = startAgent(t, rt, newRemoteRuntime(rt, hangs), lifecycle.Options{})
				n.set() // all sources are complete before the first observation
				for range 600 {
					require.True(t, n.reconciler.MayRun("uid-a"))
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// The directory of a pod that cannot be read, or that belongs to another agent, is kept, because it stores the user ID range
// of running containers. Otherwise a new pod would get this range.
func TestDirectoriesOfUnreadableOrForeignPodsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var hangs atomic.Bool
		root := t.TempDir()
		ranges, err := userns.New(root, userns.Options{})
		require.NoError(t, err)
		options := func(owner string) lifecycle.Options {
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}, Owner: owner}
			o.Spec.UserNamespace = ranges.Assign
			o.Spec.RuntimeHandlers = func() []cri.RuntimeHandler { return []cri.RuntimeHandler{{UserNamespaces: true}} }
			return o
		}
		podWithUserNamespace := func(name string) *corev1.Pod {
			pod := podtest.Pod(name)
			pod.Spec.HostUsers = new(false)
			return pod
		}
		n := startAgent(t, rt, rt, options("nodeagent"))
		n.set(podWithUserNamespace("a"))
		time.Sleep(time.Second)
		n.stop()
		n = startAgent(t, rt, rt, options("another"))
		n.set(podWithUserNamespace("b"))
		time.Sleep(time.Second)
		n.stop()

		hangs.Store(true)
		via := newRemoteRuntime(rt, func(op, id string) bool {
			return hangs.Load() && op == "ContainerStatus" && strings.HasPrefix(id, "uid-a-")
		})
		n = startAgent(t, rt, via, options("nodeagent"))
		n.set(podWithUserNamespace("c"))
		time.Sleep(time.Minute)
		n.requireStatus("c", "Running, main: ready")
		used := map[uint32]string{}
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		require.Len(t, snap.Sandboxes, 3)
		for _, s := range snap.Sandboxes {
			host := s.Namespaces.User.UIDs[0].HostID
			require.Empty(t, used[host], "%s has the IDs of another pod", s.ID)
			used[host] = s.ID
		}
		require.DirExists(t, filepath.Join(root, "uid-a"))
		require.DirExists(t, filepath.Join(root, "uid-b"))

		hangs.Store(false)
		time.Sleep(time.Minute)
		require.NoDirExists(t, filepath.Join(root, "uid-a"), "directory of the terminated orphan is removed")
		require.DirExists(t, filepath.Join(root, "uid-b"))
	})
}

// Directories are not removed before the runtime was listed completely.
func TestDirectoriesKeptBeforeFirstCompleteList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		path := filepath.Join(o.Dirs.Pods, "former", "record.json")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(`{"version":1}`), 0o600))
		var fails atomic.Bool
		fails.Store(true)
		n := startAgent(t, rt, newRemoteRuntime(rt, func(op, _ string) bool { return fails.Load() && op == "List" }), o)
		n.set()
		time.Sleep(10 * time.Minute)
		require.FileExists(t, path)
		require.Contains(t, n.errors(), "List: context deadline exceeded", "the hanging list is reported")
		fails.Store(false)
		time.Sleep(10 * time.Minute)
		require.NoFileExists(t, path)
	})
}

// Drain does not return nil before the runtime's pods were listed.
func TestDrainWaitsForFirstList(t *testing.T) {
	for name, hangs := range map[string]func(op, id string) bool{
		"calls are slow":   neverHangs,
		"lists hang":       func(op, _ string) bool { return op == "List" },
		"inspections hang": func(op, _ string) bool { return op == "ContainerStatus" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				n := startAgent(t, rt, rt, lifecycle.Options{})
				n.set(podtest.Pod("a"), podtest.Pod("b"))
				time.Sleep(time.Minute)
				n.stop()

				var healed atomic.Bool
				n = startAgent(t, rt, newRemoteRuntime(rt, func(op, id string) bool { return !healed.Load() && hangs(op, id) }), lifecycle.Options{})
				time.AfterFunc(5*time.Minute, func() { healed.Store(true) })
				if name == "lists hang" {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := n.reconciler.Drain(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "relist: none has succeeded yet")
				}
				require.NoError(t, n.reconciler.Drain(t.Context()))
				sandboxes, containers := n.objects()
				require.Zero(t, sandboxes+containers)
			})
		})
	}
}

// staleObserver is an observer with two observations of an orphaned pod: a list that has the pod, and an older inspection
// that does not. A third observation, after five seconds, has the pod.
type staleObserver struct {
	inspected, listed time.Time
	calls             atomic.Int64
}

func (o *staleObserver) NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error) {
	p := cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: o.inspected}
	switch {
	case uid == "":
		return p, nil
	case o.calls.Add(1) > 100:
		return p, critest.Hang(ctx)
	case p.Time.After(t):
		return p, nil
	}
	time.Sleep(time.Until(o.listed.Add(5 * time.Second)))
	p.Time = time.Now()
	return p, nil
}

func (o *staleObserver) Relist(string) {}

func (o *staleObserver) Pods() ([]cri.Pod, error) {
	if time.Since(o.listed) >= 5*time.Second {
		return nil, nil
	}
	id := cri.PodIdentity{UID: "uid", Name: "orphan", Namespace: "default"}
	return []cri.Pod{{
		PodIdentity: id, Time: o.listed,
		Sandboxes: []cri.Sandbox{{ID: "s", Pod: id, Labels: map[string]string{lifecycle.LabelOwner: "me"}}},
	}}, nil
}

// An observation of an orphaned pod that is older than the list does not remove its worker. Otherwise the agent would create and
// remove the worker in a busy loop.
func TestOrphanedPodKeepsWorkerDespiteOlderObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		o := &staleObserver{inspected: now, listed: now.Add(time.Millisecond)}
		time.Sleep(2 * time.Millisecond)
		var removed atomic.Int64
		r, err := lifecycle.New(critest.New(critest.Options{}), o, lifecycle.Options{
			Owner: "me", Hooks: lifecycle.Hooks{PodRemoved: func(cri.PodIdentity) { removed.Add(1) }},
		})
		require.NoError(t, err)
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file"}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, o.calls.Load(), "number of observations")
		assert.EqualValues(t, 1, removed.Load(), "number of PodRemoved calls")
		cancel()
		require.NoError(t, <-done)
	})
}
