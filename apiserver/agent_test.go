// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/pleg"
)

// node is an API server in memory, and an agent that runs its pods on a runtime in memory.
type node struct {
	t          *testing.T
	server     *apiservertest.Server
	runtime    *critest.Runtime
	reconciler *lifecycle.Reconciler
	statuses   *apiserver.Statuses
	stop       func() // cancels Run and waits for it; nothing else is cleaned up, as in a crash
}

// bootNode returns a node whose agent runs, in a synctest bubble.
func bootNode(t *testing.T, server *apiservertest.Server, rt *critest.Runtime, dir string, admit lifecycle.Admit) *node {
	t.Helper()
	n := &node{t: t, server: server, runtime: rt}
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	n.statuses, err = source.Statuses(apiserver.StatusesOptions{
		Pods:   func() []lifecycle.PodState { return n.reconciler.Pods() },
		MayRun: func(uid string) bool { return n.reconciler.MayRun(uid) },
	})
	require.NoError(t, err)
	recorder := source.Recorder(apiserver.RecorderOptions{})
	generator := pleg.New(rt, pleg.Options{})
	n.reconciler, err = lifecycle.New(rt, generator, lifecycle.Options{
		Owner: "n1", Sources: []string{apiserver.API}, Dirs: lifecycle.Dirs{Pods: dir}, Admit: admit,
		Hooks: lifecycle.Hooks{
			StatusChanged: n.statuses.Changed, ResourcesReleased: n.statuses.ResourcesReleased, PodRemoved: n.statuses.PodRemoved, Event: recorder.PodEvent, PodRefused: recorder.PodRefused,
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{
		generator.Run, n.reconciler.Run, n.statuses.Run, recorder.Run,
		func(ctx context.Context) error {
			return source.Pods().Run(ctx, func(u apiserver.Update) {
				if err := n.reconciler.Set(u.PodSet); err != nil {
					t.Log(err)
				}
			})
		},
	} {
		wg.Go(func() { assert.NoError(t, run(ctx)) })
	}
	n.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(n.stop)
	return n
}

// onNode runs a test with a node in virtual time.
func onNode(t *testing.T, script func(*cri.ContainerConfig) critest.Script, admit lifecycle.Admit, test func(t *testing.T, n *node)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		t.Cleanup(server.Close)
		test(t, bootNode(t, server, critest.New(critest.Options{Script: script}), dir, admit))
	})
}

// bindPod creates a pod that is bound to the node, as a scheduler does.
func (n *node) bindPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	n.t.Helper()
	grace := int64(30)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(fmt.Sprint(name, "-", n.server.ResourceVersion()))},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(pod)
	}
	podapi.Default(pod) // the server in memory sets no defaults for pods that it gets by Put
	require.NoError(n.t, n.server.Put(pod))
	pod, _ = apiservertest.Get[*corev1.Pod](n.server, "default", name)
	return pod
}

// podStatus returns the pod status at the API server; nil: there is no such pod.
func (n *node) podStatus(name string) *corev1.PodStatus {
	pod, ok := apiservertest.Get[*corev1.Pod](n.server, "default", name)
	if !ok {
		return nil
	}
	return &pod.Status
}

// eventReasons returns the reasons of all recorded events.
func (n *node) eventReasons() (reasons []string) {
	for _, e := range apiservertest.List[*corev1.Event](n.server) {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func TestAgentRunsAndRemovesPodOfAPIServer(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		pod := n.bindPod("web", nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, corev1.PodRunning, n.podStatus("web").Phase)
		assert.Contains(t, n.eventReasons(), "Started")
		assert.Less(t, n.server.CountRequests(apiservertest.Match{Verb: "patch", Resource: "pods"}), 5)
		n.server.ForgetRequests()
		time.Sleep(time.Hour)
		assert.Zero(t, n.server.CountRequests(apiservertest.Match{Verb: "patch", Resource: "pods"}), "no status is sent while a pod does not change")

		require.NoError(t, n.server.Delete(pod, nil))
		time.Sleep(45 * time.Second)
		assert.Nil(t, n.podStatus("web"))
		assert.Empty(t, n.reconciler.Pods())
	})
}

func TestPodDeletedBeforeItsStartFails(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		n.server.SetUnavailable(true)
		pod := n.bindPod("web", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/watch"} })
		require.NoError(t, n.server.Delete(pod, nil))
		n.server.SetUnavailable(false)
		time.Sleep(time.Minute)
		require.NotNil(t, n.podStatus("web"))
		assert.Equal(t, corev1.PodFailed, n.podStatus("web").Phase)
		assert.Zero(t, len(n.runtime.Calls("StartContainer")))
		assert.Equal(t, 1, n.server.CountRequests(apiservertest.Match{Verb: "delete", Resource: "pods"}))
	})
}

func TestForceDeletedAndRecreatedPodRuns(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		first := n.bindPod("web", nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, corev1.PodRunning, n.podStatus("web").Phase)
		require.NoError(t, n.server.Delete(first, new(int64)))
		second := n.bindPod("web", nil)
		require.NotEqual(t, first.UID, second.UID)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, corev1.PodRunning, n.podStatus("web").Phase)
		assert.Len(t, n.reconciler.Pods(), 1)
	})
}

// The pod fails, so that its controller can replace it. Its event names the unsupported field. It is removed as soon as it is
// deleted.
func TestUnsupportedPodFailsWithEvent(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		pod := n.bindPod("web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})
		time.Sleep(time.Minute)
		assert.Equal(t, corev1.PodFailed, n.podStatus("web").Phase)
		assert.Equal(t, "PodFeatureUnsupported", n.podStatus("web").Reason)
		events := apiservertest.List[*corev1.Event](n.server)
		require.Len(t, events, 1)
		assert.Equal(t, "PodFeatureUnsupported", events[0].Reason)
		assert.Contains(t, events[0].Message, "spec.volumes")
		assert.Equal(t, 1, n.server.CountRequests(apiservertest.Match{Verb: "patch", Resource: "pods"}))

		require.NoError(t, n.server.Delete(pod, nil))
		time.Sleep(2500 * time.Millisecond)
		assert.Nil(t, n.podStatus("web"))
	})
}

// Containers that a previous agent with other options started run until their pod is deleted.
func TestPodOfPreviousAgentRunsUntilDeleted(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		pod := n.bindPod("web", nil)
		time.Sleep(5 * time.Second)
		n.stop()
		require.NoError(t, apiservertest.Change(n.server, "default", "web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}))
		n = bootNode(t, n.server, n.runtime, t.TempDir(), nil)
		time.Sleep(time.Minute)
		assert.Equal(t, corev1.PodRunning, n.podStatus("web").Phase)
		assert.Empty(t, n.runtime.Calls("StopContainer"))
		require.NoError(t, n.server.Delete(pod, nil))
		time.Sleep(2 * time.Minute)
		assert.Nil(t, n.podStatus("web"))
		assert.NotEmpty(t, n.runtime.Calls("StopContainer"))
	})
}

// A refused update of a pod does not prevent its deletion.
func TestPodWithRefusedUpdateIsRemoved(t *testing.T) {
	onNode(t, nil, nil, func(t *testing.T, n *node) {
		pod := n.bindPod("web", nil)
		time.Sleep(5 * time.Second)
		require.NoError(t, apiservertest.Change(n.server, "default", "web", func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}} // without an image, so that the update is refused
		}))
		time.Sleep(time.Minute)
		assert.Contains(t, n.eventReasons(), "FailedValidation")
		assert.Equal(t, corev1.PodRunning, n.podStatus("web").Phase, "the pod stays running after a refused update")
		require.NoError(t, n.server.Delete(pod, nil))
		time.Sleep(2 * time.Minute)
		assert.Nil(t, n.podStatus("web"))
	})
}

func TestRestartedAgentReportsCompletedJob(t *testing.T) {
	onNode(t, func(*cri.ContainerConfig) critest.Script { return critest.ExitAfter(20*time.Second, 0) }, nil, func(t *testing.T, n *node) {
		pod := n.bindPod("job", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		time.Sleep(5 * time.Second)
		require.Equal(t, corev1.PodRunning, n.podStatus("job").Phase)
		n.stop()
		time.Sleep(time.Minute)
		n = bootNode(t, n.server, n.runtime, t.TempDir(), nil)
		time.Sleep(10 * time.Second)
		st := n.podStatus("job")
		assert.Equal(t, corev1.PodSucceeded, st.Phase)
		assert.NotNil(t, st.ContainerStatuses[0].State.Terminated)
		n.stop()
		n = bootNode(t, n.server, n.runtime, t.TempDir(), nil)
		n.server.ForgetRequests()
		time.Sleep(time.Minute)
		assert.Zero(t, n.server.CountRequests(apiservertest.Match{Verb: "patch", Resource: "pods"}), "a restarted agent sends no status of an unchanged pod")
		require.NoError(t, n.server.Delete(pod, nil))
		time.Sleep(10 * time.Second)
		assert.Nil(t, n.podStatus("job"))
	})
}

func TestRejectedPodsOfControllerFailWithDelay(t *testing.T) {
	full := func(context.Context, *corev1.Pod, []*corev1.Pod) error {
		return &podstatus.Rejection{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}
	}
	onNode(t, nil, full, func(t *testing.T, n *node) {
		for _, name := range []string{"a", "b", "c"} {
			n.bindPod(name, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}}
				p.Generation = 4
			})
		}
		failed := func() (k int) {
			for _, name := range []string{"a", "b", "c"} {
				if st := n.podStatus(name); st.Phase == corev1.PodFailed {
					assert.Equal(t, "OutOfcpu", st.Reason)
					assert.EqualValues(t, 4, st.ObservedGeneration)
					k++
				}
			}
			return k
		}
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, 1, failed())
		assert.Contains(t, n.eventReasons(), "OutOfcpu", "a rejection has its event although its status is delayed")
		time.Sleep(time.Second)
		assert.Equal(t, 2, failed())
		time.Sleep(2 * time.Second)
		assert.Equal(t, 3, failed())
	})
}
