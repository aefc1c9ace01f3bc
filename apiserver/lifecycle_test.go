// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/qos"
)

// agent runs static pods and the pods of an API server in memory, on a runtime in memory, in a synctest bubble.
type agent struct {
	*testing.T
	server     *apiservertest.Server
	rt         *critest.Runtime
	path       string
	reconciler *lifecycle.Reconciler
	store      *podstore.Store
	source     *apiserver.Source
	mirrors    *apiserver.Mirrors
	stop       func()

	mu   sync.Mutex // guards the fields below
	errs []string   // errors of Set
}

// startAgent starts an agent with the store and the containers of the previous agent.
func (a *agent) startAgent() {
	a.Helper()
	generator := pleg.New(a.rt, pleg.Options{})
	o := lifecycle.Options{Owner: "test", Sources: []string{"api", "file"}}
	o.Spec.LogRoot = a.TempDir()
	o.Dirs.Pods = filepath.Join(a.path, "pods")
	o.NoMounts = true
	o.Hooks.PodRemoved = func(cri.PodIdentity) { a.mirrors.Changed() }
	o.Admit = func(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
		if pod.Labels["app"] == "misfit" {
			return &podstatus.Rejection{Reason: "OutOfcpu", Message: "it is a test"}
		}
		return nil
	}
	var err error
	a.reconciler, err = lifecycle.New(a.rt, generator, o)
	require.NoError(a, err)
	a.source, err = apiserver.New(a.server.Config(), apiserver.Options{NodeName: "n1"})
	require.NoError(a, err)
	a.mirrors, err = a.source.Mirrors(apiserver.MirrorsOptions{
		Sources: []string{"file"}, RunningUIDs: a.runs,
		Admitted: func(uid types.UID) bool {
			state, _ := a.reconciler.Pod(string(uid))
			return state.Admitted
		},
		Node: func() *corev1.Node {
			node, _ := apiservertest.Get[*corev1.Node](a.server, "", "n1")
			return node
		},
	})
	require.NoError(a, err)
	a.store = podstore.New(filepath.Join(a.path, "store"), podstore.Options{Sources: o.Sources})
	sets, err := a.store.Load()
	require.NoError(a, err)
	for _, set := range sets {
		require.NoError(a, a.reconciler.Set(set))
	}
	ctx, cancel := context.WithCancel(a.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{
		generator.Run, a.reconciler.Run, a.store.Run, a.mirrors.Run,
		func(ctx context.Context) error { return a.source.Pods().Run(ctx, a.setPods) },
	} {
		wg.Go(func() { assert.NoError(a, run(ctx)) })
	}
	a.stop = func() { cancel(); wg.Wait() }
	time.Sleep(time.Minute)
}

func (a *agent) runs(namespace, name string) (uids []types.UID) {
	for _, p := range a.reconciler.Pods() {
		if p.Pod.Namespace == namespace && p.Pod.Name == name && p.Spec != nil && qos.IsStatic(p.Spec) {
			uids = append(uids, p.Spec.UID)
		}
	}
	return uids
}

// setPods is the sink of Pods.Run.
func (a *agent) setPods(u apiserver.Update) {
	if err := a.reconciler.Set(a.store.Update(u.PodSet)); err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.errs = append(a.errs, err.Error())
	}
}

func (a *agent) setStaticPods(pods ...*corev1.Pod) {
	a.Helper()
	set := a.store.Update(lifecycle.PodSet{Source: "file", Pods: pods})
	require.NoError(a, a.reconciler.Set(set))
	a.mirrors.Set(set)
	time.Sleep(time.Minute)
}

// runningContainers returns the running containers as pod/attempt.
func (a *agent) runningContainers() string {
	a.Helper()
	snapshot, err := a.rt.List(a.Context())
	require.NoError(a, err)
	names := map[string]string{}
	for _, sb := range snapshot.Sandboxes {
		names[sb.ID] = sb.Pod.Name
	}
	var words []string
	for _, c := range snapshot.Containers {
		if c.State == cri.ContainerRunning {
			words = append(words, fmt.Sprint(names[c.SandboxID], "/", c.Attempt))
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// apiPod returns a pod that is bound to the node.
func apiPod(name string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.NodeName = "n1"
	pod.UID = types.UID("uid-" + name)
	return pod
}

// withAgent starts an agent with the pods a and b of the API server and the static pod web.
func withAgent(t *testing.T, test func(a *agent)) {
	runInBubble(t, func(t *testing.T) {
		a := &agent{
			T: t, server: apiservertest.NewServer(apiservertest.Options{}), rt: critest.New(critest.Options{}), path: t.TempDir(),
		}
		require.NoError(t, a.server.Put(newNode(), apiPod("a"), apiPod("b")))
		a.startAgent()
		defer func() { a.stop(); a.server.Close() }()
		a.setStaticPods(staticPod("web", "h1"))
		require.Equal(t, "a/0 b/0 web/0", a.runningContainers())
		mirror, ok := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		require.True(t, ok)
		require.Equal(t, "h1", mirror.Annotations[corev1.MirrorPodAnnotationKey])
		test(a)
		a.mu.Lock()
		defer a.mu.Unlock()
		require.Empty(t, a.errs)
	})
}

// An agent that boots without its API server runs the last known pods. When the server is available again, no container is
// restarted, and changes made meanwhile are applied.
func TestAgentBootsWithoutAPIServer(t *testing.T) {
	withAgent(t, func(a *agent) {
		a.stop()
		a.server.SetUnavailable(true)
		a.rt = critest.New(critest.Options{}) // the machine lost power
		a.startAgent()
		assert.Equal(a, "a/0 b/0 web/0", a.runningContainers(), "the stored pods run before any source reports")
		a.setStaticPods(staticPod("web", "h1"))
		require.NoError(a, a.server.Remove(apiPod("b")))
		require.NoError(a, a.server.Put(apiPod("c")))
		time.Sleep(time.Hour)
		assert.Equal(a, "a/0 b/0 web/0", a.runningContainers())
		calls := len(a.rt.Calls())
		a.server.SetUnavailable(false)
		time.Sleep(2 * time.Minute)
		assert.Equal(a, "a/0 c/0 web/0", a.runningContainers())
		for _, call := range a.rt.Calls()[calls:] {
			if strings.HasPrefix(call.Op, "Stop") || strings.HasPrefix(call.Op, "Remove") {
				assert.Contains(a, call.ID, "uid-b", "%v", call)
			}
		}
	})
}

// A restart of the agent changes no running container and no mirror pod.
func TestRestartedAgentKeepsPods(t *testing.T) {
	withAgent(t, func(a *agent) {
		before, _ := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		a.stop()
		calls := len(a.rt.Calls())
		a.startAgent()
		a.setStaticPods(staticPod("web", "h1"))
		time.Sleep(time.Hour)
		assert.Equal(a, "a/0 b/0 web/0", a.runningContainers())
		for _, call := range a.rt.Calls()[calls:] {
			assert.Contains(a, []string{"List", "ListPod", "GetContainerEvents", "Version"}, call.Op, "a restarted agent only reads from the runtime")
		}
		after, _ := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		assert.Equal(a, before.UID, after.UID)
	})
}

// A deleted pod terminates within its grace period and is removed from the API server. A new pod of that name starts afresh.
func TestDeletedPodIsRemovedFromRuntime(t *testing.T) {
	withAgent(t, func(a *agent) {
		require.NoError(a, a.server.Delete(apiPod("a"), new(int64(20))))
		time.Sleep(time.Minute)
		assert.Equal(a, "b/0 web/0", a.runningContainers(), "a pod with a deletion timestamp is stopped")
		recreated := apiPod("a")
		recreated.UID = "uid-again"
		require.NoError(a, a.server.Remove(recreated))
		require.NoError(a, a.server.Put(recreated))
		time.Sleep(time.Minute)
		assert.Equal(a, "a/0 b/0 web/0", a.runningContainers())
		require.NoError(a, a.server.Remove(apiPod("b"))) // as kubectl delete --force
		time.Sleep(time.Minute)
		assert.Equal(a, "a/0 web/0", a.runningContainers())
	})
}

// A pod of the API server with annotations of a static pod is treated as an ordinary pod.
func TestPodWithStaticAnnotationIsNotStatic(t *testing.T) {
	withAgent(t, func(a *agent) {
		liar := apiPod("liar")
		liar.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "h1"}
		require.NoError(a, a.server.Put(liar))
		fake := apiPod("fake")
		fake.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "h1"}
		require.NoError(a, a.server.Put(fake))
		time.Sleep(time.Minute)
		assert.Equal(a, "a/0 b/0 liar/0 web/0", a.runningContainers())
		active, complete := a.reconciler.Active()
		assert.True(a, complete)
		for _, pod := range active {
			assert.Equal(a, pod.Name == "web", pod.Annotations["kubernetes.io/config.source"] == "file", "%s", pod.Name)
		}
		_, exists := apiservertest.Get[*corev1.Pod](a.server, "default", "fake")
		assert.False(a, exists, "a mirror pod without a static pod is deleted")
	})
}

// The mirror pod of a static pod stays until the static pod has terminated.
func TestMirrorStaysUntilItsPodTerminates(t *testing.T) {
	withAgent(t, func(a *agent) {
		a.mirrors.Set(a.store.Update(lifecycle.PodSet{Source: "file"}))
		require.NoError(a, a.reconciler.Set(lifecycle.PodSet{Source: "file"}))
		for range 600 {
			_, exists := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
			if strings.Contains(a.runningContainers(), "web") {
				require.True(a, exists, "the mirror pod stays while its static pod runs")
			}
			time.Sleep(100 * time.Millisecond)
		}
		_, exists := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		assert.False(a, exists)
		assert.Equal(a, "a/0 b/0", a.runningContainers())
	})
}

// A static pod that is removed and listed again while it terminates is restarted and keeps its mirror pod.
func TestMirrorOfRestartedStaticPodStays(t *testing.T) {
	withAgent(t, func(a *agent) {
		before, _ := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		gone := a.store.Update(lifecycle.PodSet{Source: "file"})
		require.NoError(a, a.reconciler.Set(gone))
		a.mirrors.Set(gone)
		a.setStaticPods(staticPod("web", "h1"))
		require.Equal(a, "a/0 b/0 web/1", a.runningContainers())
		after, _ := apiservertest.Get[*corev1.Pod](a.server, "default", "web")
		require.Equal(a, before.UID, after.UID)
	})
}

// A static pod that admission rejects, or that Set refuses, has no mirror pod, as in the kubelet. The mirror pod of a predecessor
// is deleted.
func TestRejectedStaticPodHasNoMirror(t *testing.T) {
	withAgent(t, func(a *agent) {
		misfit, sysctl, next := staticPod("misfit", "h2"), staticPod("sysctl", "h3"), staticPod("web", "h4")
		next.Labels = map[string]string{"app": "misfit"}
		sysctl.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "65536"}}}
		set := a.store.Update(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{misfit, sysctl, next, staticPod("fit", "h5")}})
		require.ErrorContains(a, a.reconciler.Set(set), "kernel.msgmax")
		a.mirrors.Set(set)
		time.Sleep(time.Minute)
		require.Equal(a, "a/0 b/0 fit/0", a.runningContainers())
		for _, name := range []string{"misfit", "sysctl", "web", "fit"} {
			_, exists := apiservertest.Get[*corev1.Pod](a.server, "default", name)
			require.Equal(a, name == "fit", exists, name)
		}
		for _, state := range a.reconciler.Pods() {
			fails := state.Status != nil && state.Status.Phase == corev1.PodFailed
			require.Equal(a, fails, !state.Admitted, state.Pod.Name)
		}

		before, _ := apiservertest.Get[*corev1.Pod](a.server, "default", "fit")
		a.setStaticPods(staticPod("fit", "h5"))
		a.stop()
		a.startAgent()
		after, exists := apiservertest.Get[*corev1.Pod](a.server, "default", "fit")
		require.True(a, exists, "the mirror pod of an earlier agent stays")
		require.Equal(a, before.UID, after.UID)
	})
}
