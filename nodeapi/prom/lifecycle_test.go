// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
)

// runningStatus returns a status of phase Running with one container.
func runningStatus(c corev1.ContainerStatus) *corev1.PodStatus {
	c.Name = "main"
	return &corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{c}}
}

// A terminated container is counted once, however often and in whichever field a status shows it.
func TestTerminatedContainersCountedOnce(t *testing.T) {
	p := newPages(t, prom.Options{})
	h := p.metrics.Lifecycle()
	pod := newPod("a")
	say := func(c corev1.ContainerStatus) { h.StatusChanged(pod, runningStatus(c)) }
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

	say(corev1.ContainerStatus{State: up, LastTerminationState: terminated("c0", 1, "Error")})
	assert.NotContains(t, gatherFamilies(t, p.main), "kubelet_terminated_containers_total", "counted by the previous agent")
	say(corev1.ContainerStatus{State: terminated("c1", 3, "Error"), LastTerminationState: terminated("c0", 1, "Error")})
	say(corev1.ContainerStatus{State: up, LastTerminationState: terminated("c1", 3, "Error")})
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_terminated_containers_total", "container_type=container", "exit_code=3", "reason=Error"), 0)
	say(corev1.ContainerStatus{State: terminated("c2", 137, "OOMKilled"), LastTerminationState: terminated("c2", 137, "OOMKilled")})
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_terminated_containers_total", "exit_code=137", "reason=OOMKilled"), 0, "the status shortly before a restart has the container twice")
	say(corev1.ContainerStatus{State: up, LastTerminationState: terminated("c3", 4, "Error")})
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_terminated_containers_total", "exit_code=4"), 0, "the container was never reported as terminated")
}

// A rejection is counted when it happens, and not by a restarted agent, which reports an equal status.
func TestRejectionsCountedOnce(t *testing.T) {
	p := newPages(t, prom.Options{})
	h := p.metrics.Lifecycle()
	for i, reason := range []string{"OutOfcpu", "OutOfexample.com/gpu", "MyOwn", "OutOfcpu"} {
		uid := fmt.Sprint("p", i)
		h.Event(cri.PodIdentity{UID: uid}, podevents.Event{Type: corev1.EventTypeWarning, Reason: reason})
		status := &corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: no"}
		h.StatusChanged(newPod(uid), status)
		h.StatusChanged(newPod(uid), status)
	}
	assert.InDelta(t, 2, metricValue(t, p.main, "kubelet_admission_rejections_total", "reason=OutOfcpu"), 0)
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_admission_rejections_total", "reason=OutOfExtendedResources"), 0)
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_admission_rejections_total", "reason=Other"), 0)
	assert.Zero(t, metricValue(t, p.main, "kubelet_containers_per_pod_count"), "no pod was admitted")

	h.StatusChanged(newPod("old"), &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no"})
	assert.InDelta(t, 2, metricValue(t, p.main, "kubelet_admission_rejections_total", "reason=OutOfcpu"), 0)
}

// The start of a pod is measured from the reading of its manifest, or for a pod of the API server from its creation without image
// pulls and init containers.
func TestPodStartDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages(t, prom.Options{})
		h := p.metrics.Lifecycle()
		pulled, sent := p.metrics.Images().Pulled, p.metrics.StatusSent()
		pod := newPod("a")
		pod.CreationTimestamp = metav1.Now()
		pod.Annotations = map[string]string{"kubernetes.io/config.seen": time.Now().Add(-5 * time.Second).Format(time.RFC3339Nano)}
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
		h.StatusChanged(pod, &corev1.PodStatus{Phase: corev1.PodPending})
		time.Sleep(10 * time.Second)
		pulled(images.Request{Pod: credential.Pod{UID: "a"}}, images.Pull{Total: 4 * time.Second})
		status := runningStatus(corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}})
		setup := terminated("s", 0, "Completed")
		setup.Terminated.StartedAt, setup.Terminated.FinishedAt = metav1.NewTime(time.Now().Add(-3*time.Second)), metav1.Now()
		status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: setup}}
		sent(cri.PodIdentity{UID: "a"}, time.Second)
		assert.NotContains(t, gatherFamilies(t, p.main), "kubelet_pod_start_total_duration_seconds", "the pod does not run yet")
		h.StatusChanged(pod, status)
		sent(cri.PodIdentity{UID: "a"}, time.Second)
		sent(cri.PodIdentity{UID: "a"}, time.Second)

		sum := func(name string) float64 {
			return gatherFamilies(t, p.main)[name].GetMetric()[0].GetHistogram().GetSampleSum()
		}
		assert.InDelta(t, 15, sum("kubelet_pod_start_duration_seconds"), 0.001)
		assert.InDelta(t, 10, sum("kubelet_pod_start_total_duration_seconds"), 0.001)
		assert.InDelta(t, 3, sum("kubelet_pod_start_sli_duration_seconds"), 0.001)
		assert.InDelta(t, 3, metricValue(t, p.main, "kubelet_first_network_pod_start_sli_duration_seconds"), 0.001)
		assert.InDelta(t, 3, metricValue(t, p.main, "kubelet_pod_status_sync_duration_seconds"), 0)
	})
}

func TestResizeMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages(t, prom.Options{})
		h := p.metrics.Lifecycle()
		small, large := newPod("a"), newPod("a")
		large.Generation = 2
		large.Spec.Containers[0].Resources.Requests = resources("200m")
		large.Spec.Containers[0].Resources.Limits = resources("1")
		deferred := &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.Now()},
		}}
		h.StatusChanged(small, &corev1.PodStatus{Phase: corev1.PodRunning})
		h.StatusChanged(large, deferred)
		time.Sleep(20 * time.Second)
		h.StatusChanged(large, &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodResizeInProgress}}})
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_container_requested_resizes_total", "resource=cpu", "requirement=requests", "operation=increase"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_container_requested_resizes_total", "resource=cpu", "requirement=limits", "operation=add"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_deferred_accepted_resizes_total"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_deferred_resize_duration_seconds", "resolution=accepted", "priority_bucket=normal"), 0)

		h.StatusChanged(large, deferred)
		h.StatusChanged(small, &corev1.PodStatus{Phase: corev1.PodRunning})
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_deferred_resize_duration_seconds", "resolution=reverted"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_container_requested_resizes_total", "requirement=limits", "operation=remove"), 0)
		h.StatusChanged(large, deferred)
		h.PodRemoved(cri.PodIdentity{UID: "a"})
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_deferred_resize_duration_seconds", "resolution=terminated"), 0)
	})
}

// A Reconciler and a Generator feed the metrics, with a pod that crashes and is removed.
func TestMetricsOfReconcilerAndGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(5*time.Second, 3)})})
		var pods *lifecycle.Reconciler
		p := newPages(t, prom.Options{Pods: func() []lifecycle.PodState { return pods.Pods() }})
		generator := pleg.New(rt, pleg.Options{Hooks: p.metrics.PLEG()})
		var err error
		pods, err = lifecycle.New(rt, generator, lifecycle.Options{Owner: "test", Hooks: p.metrics.Lifecycle()})
		require.NoError(t, err)
		startParts(t, generator.Run, pods.Run)
		pod := newPod("a")
		c := &pod.Spec.Containers[0]
		c.Image, c.ImagePullPolicy, c.TerminationMessagePolicy = "busybox", corev1.PullIfNotPresent, corev1.TerminationMessageReadFile
		pod.Spec.DNSPolicy, pod.Spec.TerminationGracePeriodSeconds = corev1.DNSClusterFirst, new(int64(5))
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		require.NoError(t, pods.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{pod}}))
		time.Sleep(18 * time.Second)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_desired_pods", "static="), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_working_pods", "lifecycle=sync", "config=desired", "static="), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_started_pods_total"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_start_duration_seconds"), 0)
		assert.InDelta(t, 2, metricValue(t, p.main, "kubelet_started_containers_total", "container_type=container"), 0)
		assert.InDelta(t, 2, metricValue(t, p.main, "kubelet_terminated_containers_total", "exit_code=3"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_running_pods"), 0)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_worker_duration_seconds", "operation_type=create"), 0)

		require.NoError(t, pods.Set(lifecycle.PodSet{Source: "file"}))
		time.Sleep(time.Minute)
		assert.Zero(t, metricValue(t, p.main, "kubelet_desired_pods", "static="))
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_pod_worker_duration_seconds", "operation_type=terminated"), 0)
	})
}

// A thousand containers that are created and removed leave no series and no memory.
func TestRemovedPodsLeaveNoSeries(t *testing.T) {
	p := newPages(t, prom.Options{})
	l, pr := p.metrics.Lifecycle(), p.metrics.Probes()
	one := func(i int) {
		uid := fmt.Sprint("pod-", i)
		pod := newPod(uid)
		l.Event(cri.PodIdentity{UID: uid}, podevents.Event{})
		l.StatusChanged(pod, &corev1.PodStatus{Phase: corev1.PodPending})
		l.StatusChanged(pod, runningStatus(corev1.ContainerStatus{State: terminated(uid+"-0", 0, "Completed")}))
		for _, kind := range []probe.Kind{probe.Liveness, probe.Readiness, probe.Startup} {
			k := probe.Key{PodUID: uid, Container: "main", Kind: kind}
			pr.ProbeFinished(k, probe.Result{Outcome: probe.Success}, nil, time.Millisecond)
			pr.ProbeFinished(k, probe.Result{Outcome: probe.Failure}, nil, time.Millisecond)
			defer pr.TargetRemoved(k)
		}
		l.PodRemoved(cri.PodIdentity{UID: uid})
	}
	one(0)
	series := func() (n int) {
		for _, from := range []map[string]int{countSeries(t, p.main), countSeries(t, p.probes)} {
			for _, of := range from {
				n += of
			}
		}
		return n
	}
	before, heap := series(), heapInUse()
	for i := range 1000 {
		one(i + 1)
	}
	assert.Equal(t, before, series())
	assert.Less(t, heapInUse(), heap+256<<10)
	runtime.KeepAlive(p)
}

func countSeries(t *testing.T, from interface {
	Gather() ([]*family, error)
},
) map[string]int {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	n := map[string]int{}
	for _, f := range families {
		n[f.GetName()] = len(f.GetMetric())
	}
	return n
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
