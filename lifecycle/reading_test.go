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

// distant returns a runtime that is read as containerd is: it lists without details, each call takes a while, and stuck
// tells which calls hang until their context ends.
func distant(rt *critest.Runtime, stuck func(op, id string) bool) *critest.Interceptor {
	return &critest.Interceptor{
		Runtime: critest.SummaryRuntime{Runtime: rt},
		Latency: func(string, string) time.Duration { return 300 * time.Millisecond },
		Around: func(ctx context.Context, op, id string, call func(context.Context) error) error {
			if stuck(op, id) {
				return &cri.Error{Op: op, ID: id, Err: critest.Hang(ctx)}
			}
			return call(ctx)
		},
	}
}

// waits returns why the first container of a pod waits, or nothing.
func (n *node) waits(name string) string {
	for _, c := range n.status(name).ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting.Message
		}
	}
	return ""
}

func never(string, string) bool { return false }

// edited returns the pod that a manifest with other content stands for: of the same name, with another UID.
func edited(pod *corev1.Pod, uid string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(uid)
	return pod
}

// alone lets containers take 8 s to terminate, and fails the test when one starts beside one of another pod.
func alone(t *testing.T, rt **critest.Runtime) func(*cri.ContainerConfig) critest.Script {
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

// A static pod whose manifest changed while no agent ran must not run beside its former self: both have the same ports,
// files and names in the world.
func TestPodThatChangedWhileNoAgentRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: alone(t, &rt)})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		n := boot(t, rt, distant(rt, never), lifecycle.Options{})
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		n.stop()

		n = boot(t, rt, distant(rt, never), lifecycle.Options{})
		n.set(edited(pod, "uid-new"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		c, _ := rt.Container("uid-new/main")
		require.Equal(t, cri.ContainerRunning, c.State)
		_, containers := n.objects()
		require.Equal(t, 1, containers)
	})
}

// A pod that waits for its former self, of which the runtime says nothing, must not wait in silence: within 10 s it is told
// for whom it waits, and which call does not answer. And it must go on waiting.
func TestPodWhoseFormerSelfCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: alone(t, &rt)})
		n := boot(t, rt, distant(rt, never), lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		n.stop()

		var healed atomic.Bool
		via := distant(rt, func(op, id string) bool {
			return !healed.Load() && op == "ContainerStatus" && strings.HasPrefix(id, "uid-a-")
		})
		n = boot(t, rt, via, lifecycle.Options{})
		n.set(edited(podtest.Pod("a"), "uid-new"))
		time.Sleep(10 * time.Second)
		for what, says := range map[string]string{"Hooks.Error": n.errors(), "status": n.waits("a")} {
			require.Contains(t, says, "default/a", what)
			require.Contains(t, says, "uid-a", what)
			require.Contains(t, says, "ContainerStatus uid-a-main-0", what)
		}
		n.mu.Lock()
		require.Contains(t, n.events, "FailedSync!")
		n.mu.Unlock()
		require.Equal(t, corev1.PodPending, n.phase("a"))

		time.Sleep(time.Hour)
		_, ok := rt.Container("uid-new/main")
		require.False(t, ok, "it has not started")
		c, _ := rt.Container("uid-a/main")
		require.Equal(t, cri.ContainerRunning, c.State, "and nobody knows enough to stop the other one")

		healed.Store(true)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
	})
}

// A waiting pod that is not wanted any more, or wanted in another version, must not start when its turn comes.
func TestPodThatGoesWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *critest.Runtime
		rt = critest.New(critest.Options{Script: alone(t, &rt)})
		n := boot(t, rt, distant(rt, never), lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		n.set(pod)
		time.Sleep(time.Minute)
		n.set(edited(pod, "uid-second"))
		time.Sleep(4 * time.Second)
		require.Contains(t, n.waits("a"), "uid-a")
		n.set(edited(pod, "uid-third"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		require.Len(t, rt.Calls("StartContainer"), 2, "the second one never started")
		c, _ := rt.Container("uid-third/main")
		require.Equal(t, cri.ContainerRunning, c.State)
	})
}

// A job that has ended must not be shown as waiting because another pod of its name has yet to go.
func TestEndedPodWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 0)})})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		job := podtest.Pod("a")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		n := boot(t, rt, distant(rt, never), o)
		n.set(job)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Succeeded, main: exited 0")
		n.stop()
		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
			Pod:    cri.PodIdentity{UID: "uid-former", Name: "a", Namespace: "default"},
			Labels: map[string]string{lifecycle.LabelOwner: "nodeagent"},
		})
		require.NoError(t, err)

		via := distant(rt, func(op, id string) bool { return op == "PodSandboxStatus" && strings.HasPrefix(id, "uid-former") })
		n = boot(t, rt, via, o)
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

// What the runtime has not been asked, or has not answered, may run: the clean-up of cgroups kills what it is told does not.
func TestWhatIsNotKnownMayRun(t *testing.T) {
	for name, stuck := range map[string]func(op, id string) bool{
		"no call answers":         func(string, string) bool { return true },
		"no list answers":         func(op, _ string) bool { return op == "List" },
		"inspections hang":        func(op, _ string) bool { return op == "ContainerStatus" || op == "PodSandboxStatus" },
		"an inspection hangs":     func(op, id string) bool { return op == "ContainerStatus" && id == "uid-a-main-0" },
		"the runtime has no name": func(op, _ string) bool { return op == "Version" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				n := boot(t, rt, rt, lifecycle.Options{})
				n.set(podtest.Pod("a"))
				time.Sleep(time.Minute)
				n.stop()

				n = boot(t, rt, distant(rt, stuck), lifecycle.Options{})
				n.set() // all sources are complete, before anything was read
				for range 600 {
					require.True(t, n.reconciler.MayRun("uid-a"))
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// A directory of a pod that has not been looked into, or is not this agent's, holds the range of IDs that its containers
// run with. Were it removed, the next pod would get the same ones.
func TestDirectoriesOfPodsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var stuck atomic.Bool
		root := t.TempDir()
		ranges, err := userns.New(root, userns.Options{})
		require.NoError(t, err)
		options := func(owner string) lifecycle.Options {
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}, Owner: owner}
			o.Spec.UserNamespace = ranges.Assign
			o.Spec.RuntimeHandlers = func() []cri.RuntimeHandler { return []cri.RuntimeHandler{{UserNamespaces: true}} }
			return o
		}
		apart := func(name string) *corev1.Pod {
			pod := podtest.Pod(name)
			pod.Spec.HostUsers = new(false)
			return pod
		}
		n := boot(t, rt, rt, options("nodeagent"))
		n.set(apart("a"))
		time.Sleep(time.Second)
		n.stop()
		n = boot(t, rt, rt, options("another"))
		n.set(apart("b"))
		time.Sleep(time.Second)
		n.stop()

		stuck.Store(true)
		via := distant(rt, func(op, id string) bool {
			return stuck.Load() && op == "ContainerStatus" && strings.HasPrefix(id, "uid-a-")
		})
		n = boot(t, rt, via, options("nodeagent"))
		n.set(apart("c"))
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

		stuck.Store(false)
		time.Sleep(time.Minute)
		require.NoDirExists(t, filepath.Join(root, "uid-a"), "it has terminated")
		require.DirExists(t, filepath.Join(root, "uid-b"))
	})
}

// Directories must not be removed before the runtime was read, nor by halves of its list.
func TestDirectoriesBeforeTheRuntimeWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		path := filepath.Join(o.Dirs.Pods, "former", "record.json")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(`{"version":1}`), 0o600))
		var fails atomic.Bool
		fails.Store(true)
		n := boot(t, rt, distant(rt, func(op, _ string) bool { return fails.Load() && op == "List" }), o)
		n.set()
		time.Sleep(10 * time.Minute)
		require.FileExists(t, path)
		require.Contains(t, n.errors(), "List: context deadline exceeded", "and somebody is told")
		fails.Store(false)
		time.Sleep(10 * time.Minute)
		require.NoFileExists(t, path)
	})
}

// Drain must not report success for pods that it has not seen yet.
func TestDrainBeforeTheRuntimeWasRead(t *testing.T) {
	for name, stuck := range map[string]func(op, id string) bool{
		"calls take a while": never,
		"a list hangs":       func(op, _ string) bool { return op == "List" },
		"inspections hang":   func(op, _ string) bool { return op == "ContainerStatus" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				n := boot(t, rt, rt, lifecycle.Options{})
				n.set(podtest.Pod("a"), podtest.Pod("b"))
				time.Sleep(time.Minute)
				n.stop()

				var healed atomic.Bool
				n = boot(t, rt, distant(rt, func(op, id string) bool { return !healed.Load() && stuck(op, id) }), lifecycle.Options{})
				time.AfterFunc(5*time.Minute, func() { healed.Store(true) })
				if name == "a list hangs" {
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

// torn is an observer with two readings of one orphaned pod: a list that has it, and an inspection that began before the
// list and ended after it, which does not. Only a third one, after five seconds, brings them together.
type torn struct {
	inspected, listed time.Time
	asked             atomic.Int64
}

func (o *torn) NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error) {
	p := cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: o.inspected}
	switch {
	case uid == "":
		return p, nil
	case o.asked.Add(1) > 100:
		return p, critest.Hang(ctx)
	case p.Time.After(t):
		return p, nil
	}
	time.Sleep(time.Until(o.listed.Add(5 * time.Second)))
	p.Time = time.Now()
	return p, nil
}

func (o *torn) Relist(string) {}

func (o *torn) Pods() ([]cri.Pod, error) {
	if time.Since(o.listed) >= 5*time.Second {
		return nil, nil
	}
	id := cri.PodIdentity{UID: "uid", Name: "orphan", Namespace: "default"}
	return []cri.Pod{{
		PodIdentity: id, Time: o.listed,
		Sandboxes: []cri.Sandbox{{ID: "s", Pod: id, Labels: map[string]string{lifecycle.LabelOwner: "me"}}},
	}}, nil
}

// A reading of an orphaned pod that is older than the list which has it says nothing about it. Taken for its end, it made
// the agent give up the pod and take it up again, as fast as it could, until the next reading.
func TestOrphanedPodThatAnOlderReadingDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		o := &torn{inspected: now, listed: now.Add(time.Millisecond)}
		time.Sleep(2 * time.Millisecond)
		var gone atomic.Int64
		r, err := lifecycle.New(critest.New(critest.Options{}), o, lifecycle.Options{
			Owner: "me", Hooks: lifecycle.Hooks{PodRemoved: func(cri.PodIdentity) { gone.Add(1) }},
		})
		require.NoError(t, err)
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file"}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, o.asked.Load(), "readings that it took")
		assert.EqualValues(t, 1, gone.Load(), "times that the pod was gone")
		cancel()
		require.NoError(t, <-done)
	})
}
