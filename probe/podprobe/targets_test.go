// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

var (
	began  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	always = corev1.ContainerRestartPolicyAlways
	never  = corev1.ContainerRestartPolicyNever
)

// newPod returns a pod with running containers and an IP address.
func newPod(containers ...corev1.Container) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: containers},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1"},
	}
	for i := range containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, *runningStatus(containers[i].Name))
	}
	return pod
}

// runningStatus returns the status of a running, started container.
func runningStatus(name string) *corev1.ContainerStatus {
	started := true
	return &corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://id-" + name, Started: &started,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}},
	}
}

// exitedStatus returns the status of a container that terminated with an exit code.
func exitedStatus(name string, code int32) *corev1.ContainerStatus {
	return &corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://id-" + name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
	}
}

// tcpProbe returns a TCP probe of a port, by number or by name.
func tcpProbe(port intstr.IntOrString) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}}
}

// validTargets returns the targets of a pod without errors.
func validTargets(t *testing.T, pod *corev1.Pod, o podprobe.Options) []probe.Target {
	t.Helper()
	list, errs := podprobe.Targets(pod, &pod.Status, nil, o)
	require.Empty(t, errs)
	return list
}

// probeTarget calls the prober of a target.
func probeTarget(t *testing.T, target probe.Target) (probe.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return target.Prober.Probe(ctx)
}

// Regular containers come first, then sidecars, each with startup, readiness and liveness probe in this order. Other init
// containers and ephemeral containers have no targets.
func TestTargetsOrder(t *testing.T) {
	p := tcpProbe(intstr.FromInt32(80))
	all := func(name string) corev1.Container {
		return corev1.Container{Name: name, StartupProbe: p, ReadinessProbe: p, LivenessProbe: p}
	}
	pod := newPod(all("a"), corev1.Container{Name: "none"}, corev1.Container{Name: "b", LivenessProbe: p})
	sidecar := all("sidecar")
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []corev1.Container{all("init"), sidecar}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", LivenessProbe: p,
	}}}

	var got []string
	for _, target := range validTargets(t, pod, podprobe.Options{}) {
		assert.Equal(t, "u1", target.PodUID)
		require.NoError(t, target.Validate())
		got = append(got, fmt.Sprint(target.Container, " ", target.Kind))
	}
	assert.Equal(t, []string{
		"a Startup", "a Readiness", "a Liveness", "b Liveness", "sidecar Startup", "sidecar Readiness", "sidecar Liveness",
	}, got)

	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		pod.Status.Phase = phase
		assert.Empty(t, validTargets(t, pod, podprobe.Options{}), "a pod that is %s has no probes", phase)
	}
}

func TestTargetsSpec(t *testing.T) {
	p := tcpProbe(intstr.FromInt32(80))
	p.InitialDelaySeconds, p.PeriodSeconds, p.TimeoutSeconds, p.SuccessThreshold, p.FailureThreshold = 1, 2, 3, 4, 5
	pod := newPod(corev1.Container{Name: "c", ReadinessProbe: p})
	assert.Equal(t, probe.Spec{
		InitialDelay: time.Second, Period: 2 * time.Second, Timeout: 3 * time.Second, SuccessThreshold: 4, FailureThreshold: 5,
	}, validTargets(t, pod, podprobe.Options{})[0].Spec)

	for _, period := range []int32{0, -1} {
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = period
		list, errs := podprobe.Targets(pod, &pod.Status, nil, podprobe.Options{})
		assert.Empty(t, list)
		require.Len(t, errs, 1)
		assert.ErrorContains(t, errs[0], `pod shop/web: container "c": readinessProbe.`)
	}
}

// Each target of a container has the state of the container.
func TestTargetsHaveTheContainerState(t *testing.T) {
	yes, no := true, false
	p := tcpProbe(intstr.FromInt32(80))
	for name, row := range map[string]struct {
		change func(pod *corev1.Pod, st *corev1.ContainerStatus)
		want   probe.Target
	}{
		"running":     {nil, probe.Target{ContainerID: "id-c", Running: true, StartedAt: began, Started: true}},
		"not started": {func(_ *corev1.Pod, st *corev1.ContainerStatus) { st.Started = &no }, probe.Target{ContainerID: "id-c", Running: true, StartedAt: began}},
		"started unknown": {
			func(_ *corev1.Pod, st *corev1.ContainerStatus) { st.Started = nil },
			probe.Target{ContainerID: "id-c", Running: true, StartedAt: began},
		},
		"not started, no probe to wait for": {
			func(pod *corev1.Pod, st *corev1.ContainerStatus) {
				st.Started, pod.Spec.Containers[0].StartupProbe = &no, nil
			},
			probe.Target{ContainerID: "id-c", Running: true, StartedAt: began, Started: true},
		},
		"plain ID": {
			func(_ *corev1.Pod, st *corev1.ContainerStatus) { st.ContainerID = "x" },
			probe.Target{ContainerID: "x", Running: true, StartedAt: began, Started: true},
		},
		"waiting": {
			func(_ *corev1.Pod, st *corev1.ContainerStatus) {
				st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
				st.Started = &yes
			},
			probe.Target{ContainerID: "id-c"},
		},
		"exited":       {func(_ *corev1.Pod, st *corev1.ContainerStatus) { *st = *exitedStatus("c", 1) }, probe.Target{ContainerID: "id-c"}},
		"no container": {func(_ *corev1.Pod, st *corev1.ContainerStatus) { st.ContainerID = "" }, probe.Target{}},
		"no status":    {func(pod *corev1.Pod, _ *corev1.ContainerStatus) { pod.Status.ContainerStatuses = nil }, probe.Target{}},
		"no address":   {func(pod *corev1.Pod, _ *corev1.ContainerStatus) { pod.Status.PodIP = "" }, probe.Target{Started: true, StartedAt: began}},
		"deleted": {
			func(pod *corev1.Pod, _ *corev1.ContainerStatus) { pod.DeletionTimestamp = &metav1.Time{Time: began} },
			probe.Target{ContainerID: "id-c", Running: true, StartedAt: began, Started: true, Terminating: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(corev1.Container{Name: "c", StartupProbe: p, ReadinessProbe: p})
			if row.change != nil {
				row.change(pod, &pod.Status.ContainerStatuses[0])
			}
			for _, got := range validTargets(t, pod, podprobe.Options{}) {
				want := row.want
				want.Key, want.Prober = probe.Key{PodUID: "u1", Container: "c", Kind: got.Kind}, got.Prober
				want.Spec.Period = 10 * time.Second
				assert.Equal(t, want.ContainerID, got.ContainerID)
				got.Prober, want.Prober = nil, nil
				assert.Equal(t, want, got)
			}
		})
	}
}

// A sidecar of a terminating pod is probed until it terminates.
func TestSidecarOfDeletedPodIsProbed(t *testing.T) {
	pod := newPod()
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "s", RestartPolicy: &always, LivenessProbe: tcpProbe(intstr.FromInt32(80)),
	}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{*runningStatus("s")}
	pod.DeletionTimestamp = &metav1.Time{Time: began}
	list := validTargets(t, pod, podprobe.Options{})
	require.Len(t, list, 1)
	assert.Equal(t, "id-s", list[0].ContainerID)
	assert.False(t, list[0].Terminating)
}

// A container that does not exist yet has a prober that returns an error, and no other error.
func TestTargetsBeforeTheContainerExists(t *testing.T) {
	pod := newPod(corev1.Container{Name: "c", ReadinessProbe: tcpProbe(intstr.FromString("none such"))})
	pod.Status.PodIP = ""
	_, err := probeTarget(t, validTargets(t, pod, podprobe.Options{})[0])
	assert.EqualError(t, err, "there is no container to probe yet")
}

// The host of a probe replaces the missing IP address of its pod.
func TestTargetsWithHostNeedNoPodIP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := tcpProbe(intstr.FromInt(l.Addr().(*net.TCPAddr).Port))
	p.TCPSocket.Host = "127.0.0.1"
	pod := newPod(corev1.Container{Name: "c", ReadinessProbe: p})
	pod.Status.PodIP = ""
	result, err := probeTarget(t, validTargets(t, pod, podprobe.Options{})[0])
	require.NoError(t, err)
	assert.Equal(t, probe.Success, result.Outcome)
}

func TestExecExpandsItsCommand(t *testing.T) {
	var got []string
	execer := probe.ExecFunc(func(_ context.Context, id string, command []string) ([]byte, int, error) {
		got = append([]string{id}, command...)
		return []byte("fine"), 0, nil
	})
	pod := newPod(corev1.Container{
		Name: "c",
		Env: []corev1.EnvVar{
			{Name: "A", Value: "v"},
			{Name: "REF", Value: "$(A)"},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}},
		},
		LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
			Exec:    &corev1.ExecAction{Command: []string{"sh", "-c", "x $(A) $(B)", "$(REF)", "<$(SECRET)>", "$$(A)"}},
			HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(1)}, // exec has precedence over httpGet
		}},
	})
	result, err := probeTarget(t, validTargets(t, pod, podprobe.Options{Execer: execer})[0])
	require.NoError(t, err)
	assert.Equal(t, probe.Result{Outcome: probe.Success, Output: "fine"}, result)
	assert.Equal(t, []string{"id-c", "sh", "-c", "x v $(B)", "$(A)", "<>", "$(A)"}, got)
}

// A command that grows too large by references to variables is rejected while it is expanded.
func TestExecRejectsCommandsThatExpandTooFar(t *testing.T) {
	execer := probe.ExecFunc(func(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil })
	big := strings.Repeat("$(A)", 100)
	for want, command := range map[string][]string{
		"exec: command[1]: Too long: may not be more than 131071 bytes": {"x", strings.Repeat(big, 100)},
		"exec: command[0]: Too long: may not be more than 131071 bytes": {strings.Repeat(big, 1000)},
		"exec: command[20]: Too long: arguments and environment":        slices.Repeat([]string{big}, 40),
	} {
		pod := newPod(corev1.Container{
			Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1000)}},
			LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}},
		})
		costtest.Check(t, costtest.Limit{Bytes: 16 << 20}, func() {
			_, errs := podprobe.Targets(pod, &pod.Status, nil, podprobe.Options{Execer: execer})
			require.Len(t, errs, 1)
			assert.ErrorContains(t, errs[0], `pod shop/web: container "c": livenessProbe.`+want)
		})
	}
}

func TestHTTPProber(t *testing.T) {
	seen := make(chan *http.Request, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r }))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	defer pool.Close()
	pod := newPod(corev1.Container{
		Name:  "c",
		Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "web", ContainerPort: int32(port)}, {Name: "web", ContainerPort: 2}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: corev1.URISchemeHTTPS, Path: "/ready?full=1", Port: intstr.FromString("web"),
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "shop.example"}, {Name: "X-A", Value: "1"}, {Name: "X-A", Value: "2"}},
		}}},
	})
	result, err := probeTarget(t, validTargets(t, pod, podprobe.Options{Pool: pool})[0])
	require.NoError(t, err)
	require.Equal(t, probe.Result{Outcome: probe.Success}, result)
	r := <-seen
	assert.Equal(t, "/ready?full=1", r.RequestURI)
	assert.Equal(t, "shop.example", r.Host)
	assert.Equal(t, []string{"1", "2"}, r.Header.Values("X-A"))
}

func TestGRPCProber(t *testing.T) {
	service, mode := "ready", corev1.GRPCProbeModeTLS
	var got []podprobe.GRPCConfig
	o := podprobe.Options{GRPC: func(g podprobe.GRPCConfig) (probe.Prober, error) {
		got = append(got, g)
		return probe.Func(func(context.Context) (probe.Result, error) { return probe.Result{Outcome: probe.Success}, nil }), nil
	}}
	pod := newPod(
		corev1.Container{Name: "a", LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
			GRPC: &corev1.GRPCAction{Port: 90},
		}}},
		corev1.Container{Name: "b", LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
			GRPC: &corev1.GRPCAction{Port: 91, Service: &service, Mode: &mode},
		}}},
	)
	validTargets(t, pod, o)
	assert.Equal(t, []podprobe.GRPCConfig{
		{Host: "127.0.0.1", Port: 90},
		{Host: "127.0.0.1", Port: 91, Service: "ready", TLS: true},
	}, got)
}

// A probe that can never run has an error with the pod, the container and the field, and always fails. Other probes are not
// affected.
func TestTargetsOfProbesThatCannotRun(t *testing.T) {
	good := tcpProbe(intstr.FromInt32(80))
	get := func(change func(*corev1.HTTPGetAction)) *corev1.Probe {
		action := &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}
		change(action)
		return &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: action}}
	}
	for want, p := range map[string]*corev1.Probe{
		`tcpSocket: field Port: "web" names no port of the container`: tcpProbe(intstr.FromString("web")),
		`tcpSocket: field Port: 0 `:                                   tcpProbe(intstr.FromInt32(0)),
		`tcpSocket: field Port: 65536 `:                               tcpProbe(intstr.FromInt32(65536)),
		`httpGet: field Port: 70000 `:                                 get(func(a *corev1.HTTPGetAction) { a.Port = intstr.FromInt32(70000) }),
		`httpGet: field Host: "a\x00b" `:                              get(func(a *corev1.HTTPGetAction) { a.Host = "a\x00b" }),
		`httpGet: field Header`: get(func(a *corev1.HTTPGetAction) {
			a.HTTPHeaders = []corev1.HTTPHeader{{Name: "X", Value: "a\r\nb"}}
		}),
		`exec: exec probes are not supported: podprobe.Options.Execer is nil`: {PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
		`grpc: gRPC probes are not supported: podprobe.Options.GRPC is nil`:   {PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}},
		`handler: is none of exec`: {PeriodSeconds: 10},
	} {
		t.Run(want, func(t *testing.T) {
			pod := newPod(corev1.Container{Name: "c", ReadinessProbe: p, LivenessProbe: good})
			for range 2 { // the error is returned by each call
				list, errs := podprobe.Targets(pod, &pod.Status, nil, podprobe.Options{})
				require.Len(t, errs, 1)
				assert.ErrorContains(t, errs[0], `pod shop/web: container "c": readinessProbe.`+want)
				require.Len(t, list, 2)
				result, err := probeTarget(t, list[0])
				require.NoError(t, err)
				assert.Equal(t, probe.Failure, result.Outcome)
				assert.Contains(t, result.Output, want)
			}
		})
	}
}

// Probers are reused for an unchanged container and pod IP, and otherwise replaced.
func TestTargetsReuseProbers(t *testing.T) {
	made := 0
	o := podprobe.Options{GRPC: func(podprobe.GRPCConfig) (probe.Prober, error) {
		made++
		if made == 1 {
			return nil, errors.New("not now")
		}
		return probe.Func(func(context.Context) (probe.Result, error) { return probe.Result{}, nil }), nil
	}}
	pod := newPod(corev1.Container{Name: "c", LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
		GRPC: &corev1.GRPCAction{Port: 90},
	}}})
	var list []probe.Target
	sync := func(wantMade, wantErrors int) {
		t.Helper()
		var errs []error
		list, errs = podprobe.Targets(pod, &pod.Status, list, o)
		assert.Len(t, errs, wantErrors)
		assert.Equal(t, wantMade, made)
	}
	sync(1, 1)
	sync(2, 0) // the prober of the failing probe is created again
	sync(2, 0)
	pod.Status.ContainerStatuses[0].ContainerID = "containerd://next"
	sync(3, 0)
	pod.Status.PodIP = "127.0.0.2"
	sync(4, 0)
	sync(4, 0)
}

// closableProber is a prober that counts its Close calls.
type closableProber struct {
	probe.Func
	closed int
}

func (o *closableProber) Close() error { o.closed++; return nil }

// A prober without Close is no io.Closer, because a set tracks each io.Closer. A closable prober closes the prober that it
// wraps. Both are reused with their container.
func TestOnlyClosableProbersAreClosers(t *testing.T) {
	inner := new(closableProber)
	o := podprobe.Options{GRPC: func(podprobe.GRPCConfig) (probe.Prober, error) { return inner, nil }}
	pod := newPod(corev1.Container{Name: "c", ReadinessProbe: tcpProbe(intstr.FromInt32(80)), LivenessProbe: &corev1.Probe{
		PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 90}},
	}})
	list := validTargets(t, pod, o)
	require.Len(t, list, 2)
	assert.NotImplements(t, (*io.Closer)(nil), list[0].Prober)
	require.NoError(t, list[1].Prober.(io.Closer).Close())
	assert.Equal(t, 1, inner.closed)

	again, _ := podprobe.Targets(pod, &pod.Status, list, o)
	for i := range list {
		assert.Same(t, list[i].Prober, again[i].Prober)
	}
}
