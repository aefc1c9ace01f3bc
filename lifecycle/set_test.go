// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/pleg"
)

// podWithMutableFields returns a pod with a value in each field that the tests change.
func podWithMutableFields() *corev1.Pod {
	pod := podtest.Pod("a", "main", "other")
	pod.Labels = map[string]string{"app": "a"}
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup"), podtest.Sidecar("proxy")}
	pod.Spec.ActiveDeadlineSeconds = new(int64(1000))
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
		}
	}
	pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}}
	podtest.AddEphemeral(pod, "other")
	podapi.Default(pod)
	return pod
}

// Set refuses a change that cannot be applied, and names the field.
func TestSetNamesImmutableField(t *testing.T) {
	main := func(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] }
	for want, change := range map[string]func(pod *corev1.Pod){
		"metadata.name":                      func(pod *corev1.Pod) { pod.Name = "b" },
		"metadata.namespace":                 func(pod *corev1.Pod) { pod.Namespace = "other" },
		"spec.restartPolicy":                 func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"spec.terminationGracePeriodSeconds": func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(1)) },
		"spec.activeDeadlineSeconds":         func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = nil },
		"spec.tolerations":                   func(pod *corev1.Pod) { pod.Spec.Tolerations = nil },
		"spec.hostNetwork":                   func(pod *corev1.Pod) { pod.Spec.HostNetwork = true },
		"spec.containers":                    func(pod *corev1.Pod) { pod.Spec.Containers = pod.Spec.Containers[1:] },
		"spec.containers[0].name":            func(pod *corev1.Pod) { main(pod).Name = "first" },
		"spec.containers[0].command":         func(pod *corev1.Pod) { main(pod).Command = []string{"sh"} },
		"spec.containers[0].env":             func(pod *corev1.Pod) { main(pod).Env = []corev1.EnvVar{{Name: "A", Value: "b"}} },
		"spec.containers[0].resources.limits": func(pod *corev1.Pod) {
			main(pod).Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("2Gi")
		},
		"spec.containers[0].resizePolicy[0].restartPolicy":  func(pod *corev1.Pod) { main(pod).ResizePolicy[0].RestartPolicy = corev1.RestartContainer },
		"spec.initContainers[0].command":                    func(pod *corev1.Pod) { pod.Spec.InitContainers[0].Command = []string{"sh"} },
		"spec.initContainers[1].restartPolicy":              func(pod *corev1.Pod) { pod.Spec.InitContainers[1].RestartPolicy = nil },
		"spec.ephemeralContainers[0].command":               func(pod *corev1.Pod) { pod.Spec.EphemeralContainers[0].Command = []string{"sh"} },
		"spec.ephemeralContainers[" + ephemeralName() + "]": func(pod *corev1.Pod) { pod.Spec.EphemeralContainers = nil },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"setup": critest.ExitAfter(time.Second, 0)})})
				n := startAgent(t, rt, rt, lifecycle.Options{})
				n.set(podWithMutableFields())
				time.Sleep(time.Minute)
				starts, sandboxes := ops(rt, "StartContainer"), ops(rt, "RunPodSandbox")
				require.Equal(t, corev1.PodRunning, n.phase("a"))

				changed := podWithMutableFields()
				change(changed)
				err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed, podtest.Pod("c")}})
				var immutable *podapi.ImmutableError
				require.ErrorAs(t, err, &immutable)
				require.Equal(t, "default/a uid-a", immutable.Pod.Namespace+"/"+immutable.Pod.Name+" "+immutable.Pod.UID)
				require.Len(t, immutable.Fields, 1)
				require.Equal(t, want, immutable.Fields[0].Field)
				var first *field.Error
				require.ErrorAs(t, err, &first)
				require.ErrorContains(t, err, "default/a")
				require.ErrorContains(t, err, want)
				require.NotContains(t, err.Error(), "default/c")

				time.Sleep(time.Minute)
				require.Equal(t, corev1.PodRunning, n.phase("a"), "the pod with the refused change continues")
				require.Equal(t, corev1.PodRunning, n.phase("c"), "other pods of the set are applied")
				require.Equal(t, starts+1, ops(rt, "StartContainer"))
				require.Equal(t, sandboxes+1, ops(rt, "RunPodSandbox"))
				require.Zero(t, ops(rt, "StopContainer"))
				require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed}}), "a repeated refusal is not returned")
				n.set(podWithMutableFields())
				require.Error(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed}}), "a refusal after a valid update is returned")
			})
		})
	}
}

func ephemeralName() string { return podWithMutableFields().Spec.EphemeralContainers[0].Name }

// A refused update still applies the deletion of the pod and a shorter grace period.
func TestRefusedUpdateAppliesDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		set := func(grace int64) error {
			changed := podtest.Pod("a")
			podapi.Default(changed)
			changed.Spec.Hostname = "another"
			changed.DeletionTimestamp, changed.DeletionGracePeriodSeconds = new(metav1.Now()), &grace
			return n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed}})
		}
		require.ErrorContains(t, set(600), "spec.hostname")
		time.Sleep(5 * time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.NotEmpty(t, rt.Calls("StopContainer"))
		require.NoError(t, set(5), "a repeated refusal of the field is not returned")
		time.Sleep(10 * time.Second)
		require.Equal(t, corev1.PodFailed, n.phase("a"))
	})
}

// Set accepts an update with fewer defaults, as from an API server of another version.
func TestSetAcceptsUpdateWithFewerDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		podapi.Default(pod)
		pod.Spec.SchedulerName, pod.Spec.EnableServiceLinks = "", nil
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}}))
		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"a": "b"}
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed}}))
	})
}

func TestSetAcceptsMutableFields(t *testing.T) {
	for name, change := range map[string]func(pod *corev1.Pod){
		"image":      func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "busybox:2" },
		"init image": func(pod *corev1.Pod) { pod.Spec.InitContainers[1].Image = "busybox:2" },
		"resources": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("200m")
			pod.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		},
		"less time":   func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(500)) },
		"tolerations": func(pod *corev1.Pod) { pod.Spec.Tolerations[0].TolerationSeconds = new(int64(5)) },
		"several defaults missing": func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "l", Operator: corev1.TolerationOpExists})
		},
		"labels":               func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, map[string]string{"a": "b"} },
		"deletion":             func(pod *corev1.Pod) { now := metav1.Now(); pod.DeletionTimestamp = &now },
		"status":               func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning },
		"ephemeral containers": func(pod *corev1.Pod) { podtest.AddEphemeral(pod, "other") },
		"a notation": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1000m")
		},
		"empty list": func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{} },
	} {
		t.Run(name, func(t *testing.T) {
			rt := critest.New(critest.Options{})
			r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{})
			require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{podWithMutableFields()}}))
			changed := podWithMutableFields()
			change(changed)
			podapi.Default(changed)
			require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{changed}}))
			pods, _ := r.Active()
			require.Len(t, pods, 1)
			require.True(t, equality.Semantic.DeepEqual(changed, pods[0]))
		})
	}
}

// A change in place of a pod that was passed to Set is found by the next Set.
func TestSetFindsPodChangedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pods := []*corev1.Pod{podtest.Pod("a")}
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
		time.Sleep(time.Second)
		pods[0].Spec.Containers[0].Image = "busybox:2"
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, ops(rt, "StartContainer"), "the agent does not use the changed object before the next Set")
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
		time.Sleep(time.Second)
		c, _ := rt.Container("a/main")
		require.Equal(t, "busybox:2", c.Image.UserSpecifiedImage)
		pods[0].Spec.Containers[0].Command = []string{"sh"}
		err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods})
		require.ErrorContains(t, err, "spec.containers[0].command")
	})
}

// Set keeps shared pods without a copy, and does not write to them.
func TestSetKeepsSharedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		first, second := podtest.Pod("a", "main", "other"), podtest.Pod("a", "main", "other")
		second.Spec.Containers[0].Image = "busybox:2"
		for _, pod := range []*corev1.Pod{first, second} {
			given := pod.DeepCopy()
			require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}, Shared: true}))
			time.Sleep(time.Minute)
			state, ok := n.reconciler.Pod(string(pod.UID))
			require.True(t, ok)
			require.Same(t, pod, state.Spec)
			require.Equal(t, corev1.PodRunning, n.phase("a"))
			require.Equal(t, given, pod)
		}
		given := second.DeepCopy()
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Shared: true}))
		time.Sleep(time.Minute)
		require.Empty(t, n.reconciler.Pods())
		require.Equal(t, given, second)
	})
}

// Set refuses nil pods and pods without a UID, and accepts the remaining ones.
func TestSetRefusesNilPodsAndPodsWithoutUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		nameless, second := podtest.Pod("b"), podtest.Pod("c")
		nameless.UID, second.UID = "", ""
		err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{nil, nameless, second, podtest.Pod("a"), nil}})
		require.ErrorContains(t, err, `set of source "test": pod 0 is nil`)
		require.ErrorContains(t, err, `set of source "test": pod 4 is nil`)
		require.Equal(t, 2, strings.Count(err.Error(), "metadata.uid"), "the missing UID is reported once per pod")
		require.Equal(t, 2, strings.Count(err.Error(), "lifecycle/source"), "the error suggests package source")
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}

// Set refuses a source that Options.Sources does not name, such as a misspelled one.
func TestSetRefusesUnknownSource(t *testing.T) {
	rt := critest.New(critest.Options{})
	r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Sources: []string{"file", "api"}})
	err := r.Set(lifecycle.PodSet{Source: "fiel", Pods: []*corev1.Pod{podtest.Pod("a")}})
	require.EqualError(t, err, `set of source "fiel": Options.Sources does not name it, but ["file" "api"]`)
	pods, _ := r.Active()
	require.Empty(t, pods)
	require.NoError(t, r.Set(lifecycle.PodSet{Source: "file"}))
}

// A Set with a slow validation does not block other methods.
func TestChangedDoesNotWaitForASlowSet(t *testing.T) {
	rt := critest.New(critest.Options{})
	entered, leave := make(chan struct{}), make(chan struct{})
	r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Probes: nil})
	slow := func() { close(entered); <-leave }
	lifecycle.BeforeCheck(r, func(pod *corev1.Pod) {
		if pod.Name == "slow" {
			slow()
		}
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(leave)
	wg.Go(func() {
		assert.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{podtest.Pod("slow")}}))
	})
	<-entered
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		r.Changed("uid-slow")
		r.Active()
		assert.NoError(t, r.Set(lifecycle.PodSet{Source: "other", Pods: []*corev1.Pod{podtest.Pod("b")}}))
	})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
}

// An older call of Set that takes longer does not replace the pods of a newer call.
func TestLaterOfTwoSetsWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{})
		leave := make(chan struct{})
		lifecycle.BeforeCheck(r, func(pod *corev1.Pod) {
			if pod.Name == "slow" {
				<-leave
			}
		})
		set := func(names ...string) {
			var pods []*corev1.Pod
			for _, name := range names {
				pods = append(pods, podtest.Pod(name))
			}
			go func() { assert.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: pods})) }()
			time.Sleep(time.Second) // durably blocked, or done
		}
		set("slow", "a")
		set("b")
		set("c")
		close(leave)
		synctest.Wait()
		pods, _ := r.Active()
		require.Len(t, pods, 1)
		require.Equal(t, "c", pods[0].Name)
	})
}

func thousandPods() []*corev1.Pod {
	pods := make([]*corev1.Pod, 1000)
	for i := range pods {
		pods[i] = podWithMutableFields()
		pods[i].Name, pods[i].UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("uid-", i))
		pods[i].Labels = map[string]string{"app": "a", "tier": "b", "index": fmt.Sprint(i)}
	}
	return pods
}

// Set of 1,000 unchanged pods does not allocate. Time stands still in the bubble, so the report of the missing Run, which is
// due after 8 s, does not add allocations.
func TestSetOfUnchangedPodsAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{})
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: thousandPods()}))
		equal := thousandPods() // equal pods in other objects
		checks := 0
		lifecycle.BeforeCheck(r, func(*corev1.Pod) { checks++ })
		set := lifecycle.PodSet{Source: "test", Pods: equal}
		least := testing.AllocsPerRun(10, func() { _ = r.Set(set) })
		for range 4 { // on a busy machine the runtime allocates meanwhile
			least = min(least, testing.AllocsPerRun(10, func() { _ = r.Set(set) }))
		}
		assert.Zero(t, least)
		assert.Zero(t, checks, "unchanged pods are not validated")
		equal[500].Spec.Containers[0].Image = "busybox:2"
		require.NoError(t, r.Set(set))
		assert.Equal(t, 1, checks, "only the changed pod is validated")
	})
}

// BenchmarkSetUnchanged passes 1,000 unchanged pods to Set.
func BenchmarkSetUnchanged(b *testing.B) {
	rt := critest.New(critest.Options{})
	for name, again := range map[string]func([]*corev1.Pod) []*corev1.Pod{
		"same":  func(pods []*corev1.Pod) []*corev1.Pod { return pods },
		"equal": func([]*corev1.Pod) []*corev1.Pod { return thousandPods() },
	} {
		b.Run(name, func(b *testing.B) {
			r := newReconciler(b, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{})
			pods := thousandPods()
			require.NoError(b, r.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
			set := lifecycle.PodSet{Source: "test", Pods: again(pods)}
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Set(set); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pod that is dropped and listed again by its source between two syncs is restarted with its UID, like a static pod whose
// manifest is rewritten.
func TestPodListedAgainAtOnceIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Minute)
		require.Equal(t, 2, ops(rt, "StartContainer"))
		n.set(podtest.Pod("b"))
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"))
		require.Equal(t, 3, ops(rt, "StartContainer"))
		n.requireStatus("a", "Running, main: ready")
		n.requireStatus("b", "Running, main: ready")
	})
}
