// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/promtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/volume"
)

// testPages holds metrics and their registries.
type testPages struct {
	t       *testing.T
	main    *prometheus.Registry
	probes  *prometheus.Registry
	metrics *prom.Metrics
}

func newPages(t *testing.T, o prom.Options) *testPages {
	t.Helper()
	p := &testPages{t: t, main: prometheus.NewPedanticRegistry(), probes: prometheus.NewPedanticRegistry()}
	o.Probes = p.probes
	var err error
	p.metrics, err = prom.New(p.main, o)
	require.NoError(t, err)
	return p
}

// gatherFamilies returns the metrics of a page by name.
func gatherFamilies(t *testing.T, from prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	names := map[string]*dto.MetricFamily{}
	for _, family := range families {
		names[family.GetName()] = family
	}
	return names
}

// metricValue returns the value of a counter or gauge, or the count of a histogram. Labels are NAME=VALUE.
func metricValue(t *testing.T, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	for _, metric := range gatherFamilies(t, from)[name].GetMetric() {
		has := map[string]bool{}
		for _, l := range metric.GetLabel() {
			has[l.GetName()+"="+l.GetValue()] = true
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
			continue
		}
		switch {
		case metric.Counter != nil:
			return metric.GetCounter().GetValue()
		case metric.Gauge != nil:
			return metric.GetGauge().GetValue()
		default:
			return float64(metric.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no series %s %v", name, labels)
	return 0
}

// feedAll calls every hook, so that every metric has a series.
func (p *testPages) feedAll() {
	m := p.metrics
	g := m.PLEG()
	g.Relisted(pleg.Relist{Start: time.Now(), Interval: time.Second, Err: errors.New("no answer")})
	g.PodRelisted(pleg.PodRelist{ListedAlone: true})
	g.RunningCounted(pleg.RunningCount{Pods: 1, Containers: [4]int{1, 1, 1, 1}})
	g.StreamConnected()
	g.StreamFailed(errors.New("closed"))
	g.StreamEvent(cri.Event{}, time.Millisecond)

	pr := m.Probes()
	pr.ProbeFinished(probe.Key{PodUID: "u", Container: "main", Kind: probe.Liveness}, probe.Result{Outcome: probe.Success}, nil, time.Millisecond)

	i := m.Images()
	i.Pulled(images.Request{Image: "busybox"}, images.Pull{})
	i.Failed(images.Request{Image: "busybox"}, &images.Error{Reason: "ErrImagePull"})
	m.ImageGC().Removed(gc.Image{}, gc.RemovedForSpace)

	e := m.Eviction()
	e.ThresholdMet(eviction.MemoryAvailable, time.Second)
	e.Evicting(eviction.Eviction{Signal: eviction.MemoryAvailable})
	e.Evicted(eviction.Eviction{Signal: eviction.MemoryAvailable}, errors.New("hangs"))
	m.Preempted("cpu")

	c := m.Cgroups(2)
	c.CgroupWritten(podtree.WriterCall{Op: podtree.OpCreate})
	c.OrphanProcessed(podtree.Orphan{})
	c.PodResized("u", time.Second, nil)

	m.Runtime()("RunPodSandbox", time.Second, errors.New("no"))
	m.Volumes().StepCompleted("kubernetes.io/empty-dir", volume.StepSetUp, time.Second, nil)
	m.CSI()("driver", "NodePublishVolume", time.Second, nil)
	m.StatusSent()(cri.PodIdentity{UID: "u"}, time.Second)
	p.feedNode()
	p.feedLifecycle()

	request := prom.Request{Method: "GET", Path: "pods", ServerType: "readwrite"}
	s := m.Server()
	s.RequestStarted(request)
	s.RequestFinished(request, time.Second)
	s.WebSocketStarted("exec")
	completed, dropped := m.PodsAPI()
	for _, method := range []string{"ListPods", "GetPod", "WatchPods", "NotKnown"} {
		completed(method, "OK")
	}
	dropped()
	p.feedDevices()
}

func (p *testPages) feedDevices() {
	m := p.metrics
	d := m.Devices()
	d.AllocateCalled("example.com/gpu", time.Second, nil)
	d.Reserved(device.Reservation{Took: time.Millisecond, Policy: device.SingleNUMANode, Aligned: 2})
	d.Reserved(device.Reservation{Policy: device.SingleNUMANode, PodScope: true, Err: &device.Refusal{Reason: device.ReasonTopologyAffinityError}})
	m.CPUs(cpus.Config{Policy: cpus.PolicyStatic, Topology: device.Restricted})(cpus.Pinning{WholeCores: true, OneCache: true})
	m.CPUUsage(func() cpus.Usage { return cpus.Usage{Free: 3, Nodes: map[int]int{0: 1}} })
	m.Memory()(numa.Pinning{Err: errors.New("no memory")})
	m.DevicePlugins()("example.com/gpu")
	received, failed := m.PodResources()
	for _, method := range []string{"List", "Get", "GetAllocatableResources", "NotKnown"} {
		received("v1", method)
		failed("v1", method)
	}
	received("v1alpha1", "List")
}

func (p *testPages) feedNode() {
	now := time.Now()
	p.metrics.Node(prom.NodeOptions{Name: "node", Boot: now, Started: now})
	p.metrics.Shutdown()
	p.metrics.ServingCertificate(func() *x509.Certificate { return nil })
	p.metrics.ClientCertificate()
}

func (p *testPages) feedLifecycle() {
	l := p.metrics.Lifecycle()
	id := cri.PodIdentity{UID: "a", Namespace: "default", Name: "a"}
	l.Work.SandboxStartAttempted(id, podevents.SandboxStart{Err: errors.New("no")})
	l.Work.PodSynced(id, podevents.Sync{Op: podevents.SyncCreate, First: true})
	l.StartAttempted(id, podevents.ContainerStart{Type: podevents.RegularContainer, Err: &podstatus.StartError{Reason: "ErrImagePull", Err: errors.New("no")}})

	pod := newPod("a")
	pod.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Second))
	l.StatusChanged(pod, &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.Now()},
	}})
	resized := pod.DeepCopy()
	resized.Spec.Containers[0].Resources.Requests = resources("200m")
	l.StatusChanged(resized, &corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}, LastTerminationState: terminated("c1", 3, "Error")},
	}})
	p.metrics.StatusSent()(id, time.Second)
	l.StatusChanged(resized, &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible},
	}})
	rejected := cri.PodIdentity{UID: "b", Namespace: "default", Name: "b"}
	l.Event(rejected, podevents.Event{Type: corev1.EventTypeWarning, Reason: "OutOfcpu"})
	l.StatusChanged(newPod("b"), &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no"})
}

// TestVerdictsAreTrue checks the list of decisions about the kubelet's metrics.
func TestVerdictsAreTrue(t *testing.T) {
	pending := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred}}}
	p := newPages(t, prom.Options{MirrorPods: func() int { return 1 }, Pods: func() []lifecycle.PodState {
		return []lifecycle.PodState{{Pod: cri.PodIdentity{UID: "u"}, Spec: newPod("u"), Status: &pending}}
	}})
	require.NoError(t, prom.RegisterProcess(p.main, "1"))
	require.NoError(t, prom.RegisterStart(p.probes))
	p.feedAll()
	slis := prometheus.NewPedanticRegistry()
	require.NoError(t, prom.RegisterStart(slis))

	for page, from := range map[string]prometheus.Gatherer{
		promtest.PageMetrics: p.main, promtest.PageProbes: p.probes, promtest.PageSLIs: slis,
	} {
		t.Run(page, func(t *testing.T) {
			verdicts, err := os.ReadFile("testdata/" + page + ".txt")
			require.NoError(t, err)
			kubelet, err := promtest.Kubelet(page)
			require.NoError(t, err)
			names := gatherFamilies(t, from)
			ours := promtest.Shape(slices.Collect(maps.Values(names)))
			for _, problem := range promtest.Compare(kubelet, ours, string(verdicts), "nodeagent_") {
				t.Error(problem)
			}
		})
	}
}

// Names of metrics that the kubelet does not have follow the rules of Prometheus.
func TestOwnNamesFollowPrometheusRules(t *testing.T) {
	p := newPages(t, prom.Options{})
	require.NoError(t, prom.RegisterProcess(p.main, "1"))
	p.feedAll()
	for _, from := range []prometheus.Gatherer{p.main, p.probes} {
		families, err := from.Gather()
		require.NoError(t, err)
		families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "nodeagent_") })
		require.NotEmpty(t, families)
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		require.NoError(t, err)
		assert.Empty(t, problems)
	}
}

func newPod(uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: resources("100m")}}}},
	}
}

func resources(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func terminated(id string, exitCode int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: exitCode, Reason: reason}}
}
