// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"crypto/x509"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/volume"
)

// Each hook of each package calls the caller's hook with its own arguments. A new hook that does not call it fails the test.
func TestHooksCallTheHooksOfTheCaller(t *testing.T) {
	p := newPages(t, prom.Options{})
	m := p.metrics
	checkComposed(t, func(h pleg.Hooks) pleg.Hooks { return m.PLEG(h) })
	checkComposed(t, func(h probe.Hooks) probe.Hooks { return m.Probes(h) })
	checkComposed(t, func(h images.Hooks) images.Hooks { return m.Images(h) })
	checkComposed(t, func(h gc.ImageHooks) gc.ImageHooks { return m.ImageGC(h) })
	checkComposed(t, func(h eviction.Hooks) eviction.Hooks { return m.Eviction(h) })
	checkComposed(t, func(h podtree.Hooks) podtree.Hooks { return m.Cgroups(1, h) })
	checkComposed(t, func(h volume.Hooks) volume.Hooks { return m.Volumes(h) })
	checkComposed(t, func(h lifecycle.Hooks) lifecycle.Hooks { return m.Lifecycle(h) })
	checkComposed(t, func(h lifecycle.WorkHooks) lifecycle.WorkHooks { return m.Lifecycle(lifecycle.Hooks{Work: h}).Work })
	checkComposed(t, func(h func(string, time.Duration, error)) func(string, time.Duration, error) { return m.Runtime(h) })
	checkComposed(t, func(h func(string, string, time.Duration, error)) func(string, string, time.Duration, error) {
		return m.CSI(h)
	})
	checkComposed(t, func(h func(cri.PodIdentity, time.Duration)) func(cri.PodIdentity, time.Duration) {
		return m.StatusSent(h)
	})
}

// checkComposed checks that each function of composed hooks calls the caller's function, and that missing functions are
// permitted.
func checkComposed[H any](t *testing.T, compose func(H) H) {
	t.Helper()
	var given, none H
	calls := map[string]int{}
	functions(reflect.ValueOf(&given).Elem(), "", func(name string, f reflect.Value) {
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			calls[name]++
			assert.Len(t, args, f.Type().NumIn())
			return nil
		}))
	})
	for _, hooks := range []H{given, none} {
		functions(reflect.ValueOf(new(compose(hooks))).Elem(), "", func(name string, f reflect.Value) {
			require.False(t, f.IsNil(), "%T has no %s", given, name)
			args := make([]reflect.Value, f.Type().NumIn())
			for i := range args {
				args[i] = argument(f.Type().In(i))
			}
			f.Call(args)
		})
	}
	functions(reflect.ValueOf(&given).Elem(), "", func(name string, _ reflect.Value) {
		assert.Equal(t, 1, calls[name], "%T %s", given, name)
	})
}

// argument returns an argument for a hook, without nil pointers.
func argument(of reflect.Type) reflect.Value {
	if of.Kind() == reflect.Pointer {
		return reflect.New(of.Elem())
	}
	return reflect.Zero(of)
}

// functions calls f for a function, or for each function field of hooks, including nested ones.
func functions(v reflect.Value, name string, f func(name string, v reflect.Value)) {
	if v.Kind() == reflect.Func {
		f(name, v)
		return
	}
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Func {
			f(v.Type().Field(i).Name, v.Field(i))
		}
	}
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	_, err := prom.New(nil, prom.Options{})
	require.ErrorContains(t, err, "argument registry is nil: required")
	_, err = prom.New(prometheus.NewRegistry(), prom.Options{Without: []string{"[a"}})
	require.ErrorContains(t, err, `Options.Without: "[a"`)

	registry := prometheus.NewRegistry()
	mine := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions", Help: "Pods that were evicted, by signal."}, []string{"eviction_signal"})
	registry.MustRegister(mine)
	_, err = prom.New(registry, prom.Options{})
	require.ErrorContains(t, err, "register metrics of eviction")
	registry.Unregister(mine)
	_, err = prom.New(registry, prom.Options{})
	require.NoError(t, err, "a failed New leaves no metric registered")
	_, err = prom.New(registry, prom.Options{})
	require.ErrorContains(t, err, "register metrics of pleg", "second call of New")
}

// Excluded metrics are not on the page, and series that differ only in an excluded label are added up.
func TestWithoutDropsMetricsAndLabels(t *testing.T) {
	p := newPages(t, prom.Options{
		Without: []string{"kubelet_pleg_*", "kubelet_running_containers", "kubelet_working_pods"},
		WithoutLabels: map[string][]string{
			"prober_probe_total": {"pod_uid", "pod"}, "kubelet_desired_pods": {"static"}, "nothing": {"x"},
		},
		Pods: func() []lifecycle.PodState { return []lifecycle.PodState{{Spec: newPod("a")}, {Spec: newPod("b")}} },
	})
	p.feedAll()
	names := gatherFamilies(t, p.main)
	for _, name := range []string{"kubelet_pleg_relist_duration_seconds", "kubelet_running_containers", "kubelet_working_pods"} {
		assert.NotContains(t, names, name)
	}
	assert.Contains(t, names, "kubelet_running_pods")
	assert.Len(t, names["kubelet_desired_pods"].GetMetric(), 1)
	assert.InDelta(t, 2, metricValue(t, p.main, "kubelet_desired_pods"), 0)

	probes := p.metrics.Probes()
	for _, uid := range []string{"u", "v"} {
		probes.ProbeFinished(probe.Key{PodUID: uid, Container: "main", Kind: probe.Liveness}, probe.Result{Outcome: probe.Success}, nil, 0)
	}
	assert.InDelta(t, 3, metricValue(t, p.probes, "prober_probe_total", "container=main", "result=successful"), 0)
	probes.TargetRemoved(probe.Key{PodUID: "u", Container: "main", Kind: probe.Liveness})
	assert.InDelta(t, 3, metricValue(t, p.probes, "prober_probe_total", "container=main"), 0, "the series is shared with other targets")
}

// Metrics of unused hooks are absent, because zeros would be wrong.
func TestPageHasOnlyRequestedMetrics(t *testing.T) {
	p := newPages(t, prom.Options{})
	assert.Empty(t, gatherFamilies(t, p.main))
	p.metrics.PLEG()
	assert.Contains(t, gatherFamilies(t, p.main), "kubelet_pleg_discard_events")
	assert.NotContains(t, gatherFamilies(t, p.main), "kubelet_cgroup_version")
}

func TestProbeMetrics(t *testing.T) {
	p := newPages(t, prom.Options{PodName: func(uid string) (string, string) { return "shop", "name-of-" + uid }})
	h := p.metrics.Probes()
	k := probe.Key{PodUID: "u", Container: "main", Kind: probe.Readiness}
	probed := func(o probe.Outcome, err error) {
		h.ProbeFinished(k, probe.Result{Outcome: o}, err, 20*time.Millisecond)
	}
	probed(probe.Success, nil)
	probed(probe.Warning, nil)
	probed(probe.Failure, nil)
	probed(probe.Unknown, nil)
	probed(probe.Success, errors.New("could not be made"))

	of := []string{"namespace=shop", "pod=name-of-u", "probe_type=Readiness", "container=main"}
	assert.InDelta(t, 2, metricValue(t, p.probes, "prober_probe_total", append(of, "result=successful")...), 0)
	assert.InDelta(t, 2, metricValue(t, p.probes, "prober_probe_total", append(of, "result=failed")...), 0)
	assert.InDelta(t, 2, metricValue(t, p.probes, "prober_probe_duration_seconds", of...), 0)
	h.TargetRemoved(k)
	assert.NotContains(t, gatherFamilies(t, p.probes), "prober_probe_total")
	assert.NotContains(t, gatherFamilies(t, p.probes), "prober_probe_duration_seconds")
}

func TestRuntimeOperations(t *testing.T) {
	p := newPages(t, prom.Options{})
	called := p.metrics.Runtime()
	for method, operation := range map[string]string{
		"Version": "version", "RunPodSandbox": "run_podsandbox", "PodSandboxStatus": "podsandbox_status",
		"ListPodSandbox": "list_podsandbox", "ListPodSandboxStats": "list_podsandbox_stats", "ExecSync": "exec_sync",
		"UpdateContainerResources": "update_container", "UpdatePodSandboxResources": "update_podsandbox_resources",
		"ImageFsInfo": "image_fs_info", "ReopenContainerLog": "reopen_container_log", "GetContainerEvents": "get_container_events",
	} {
		called(method, time.Second, nil)
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_runtime_operations_total", "operation_type="+operation), 0, method)
	}
	assert.NotContains(t, gatherFamilies(t, p.main), "kubelet_runtime_operations_errors_total")
	called("Version", time.Second, errors.New("away"))
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_runtime_operations_errors_total", "operation_type=version"), 0)
}

func TestImageMetrics(t *testing.T) {
	p := newPages(t, prom.Options{})
	h := p.metrics.Images()
	h.Present(images.Request{Image: "busybox:1"}, cri.Image{})
	h.Pulled(images.Request{Image: "busybox", Policy: images.PullAlways}, images.Pull{Image: cri.Image{Size: 11 << 20}})
	h.Pulled(images.Request{Image: "busybox:1"}, images.Pull{Shared: true})
	h.Failed(images.Request{Image: "busybox", Policy: images.PullNever}, &images.Error{Reason: images.ReasonErrImageNeverPull})
	h.Failed(images.Request{Image: "b@d"}, &images.Error{Reason: images.ReasonInvalidImageName})
	for _, labels := range [][]string{
		{"pull_policy=ifnotpresent", "present_locally=true", "pull_required=false"},
		{"pull_policy=always", "present_locally=unknown", "pull_required=true"},
		{"pull_policy=ifnotpresent", "present_locally=false", "pull_required=true"},
		{"pull_policy=never", "present_locally=false", "pull_required=unknown"},
		{"present_locally=unknown", "pull_required=unknown"},
	} {
		assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_image_manager_ensure_image_requests_total", labels...), 0, labels)
	}
	pulls := gatherFamilies(t, p.main)["kubelet_image_pull_duration_seconds"].GetMetric()
	require.Len(t, pulls, 1, "a shared pull is one pull")
	assert.Equal(t, "10MB-100MB", pulls[0].GetLabel()[0].GetValue())
}

func TestNodeStartupMetrics(t *testing.T) {
	p := newPages(t, prom.Options{})
	now := time.Now()
	h := p.metrics.Node(prom.NodeOptions{Name: "n", Boot: now.Add(-time.Minute), Started: now})
	ready := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(time.Second))}}
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	h.Reported(ready)
	assert.Zero(t, metricValue(t, p.main, "kubelet_node_startup_duration_seconds"), "it is not registered")
	h.Registering()
	h.Registered(ready)
	h.Reported(ready)
	total := metricValue(t, p.main, "kubelet_node_startup_duration_seconds")
	assert.InDelta(t, 60, total, 5)
	assert.InDelta(t, 60, metricValue(t, p.main, "kubelet_node_startup_pre_kubelet_duration_seconds"), 0.001)
	h.Registered(ready)
	h.Reported(ready)
	assert.InDelta(t, total, metricValue(t, p.main, "kubelet_node_startup_duration_seconds"), 0, "it started once")

	started, completed := p.metrics.Shutdown()
	completed(now)
	started(now)
	assert.Zero(t, metricValue(t, p.main, "kubelet_graceful_shutdown_end_time_seconds"))
	assert.InDelta(t, float64(now.Unix()), metricValue(t, p.main, "kubelet_graceful_shutdown_start_time_seconds"), 1)

	leaf := &x509.Certificate{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(time.Hour)}
	rotated, failed := p.metrics.ServingCertificate(func() *x509.Certificate { return leaf })
	assert.InDelta(t, 3600, metricValue(t, p.main, "kubelet_certificate_manager_server_ttl_seconds"), 5)
	rotated(nil, leaf)
	assert.Zero(t, metricValue(t, p.main, "kubelet_certificate_manager_server_rotation_seconds"), "the first one replaced none")
	rotated(leaf, leaf)
	failed(errors.New("denied"))
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_certificate_manager_server_rotation_seconds"), 0)
	assert.InDelta(t, 1, metricValue(t, p.main, "kubelet_server_expiration_renew_errors"), 0)
}
