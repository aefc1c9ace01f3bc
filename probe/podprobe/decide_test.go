// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// fixedResults returns Results for container c of pod u1.
func fixedResults(found map[probe.Kind]probe.Outcome) podprobe.Results {
	return func(k probe.Key) (probe.Value, bool) {
		outcome, ok := found[k.Kind]
		return probe.Value{ContainerID: "id-c", Outcome: outcome}, ok && k.PodUID == "u1" && k.Container == "c"
	}
}

// probedContainer returns a container with probes of these kinds.
func probedContainer(kinds ...probe.Kind) corev1.Container {
	c := corev1.Container{Name: "c"}
	for _, kind := range kinds {
		p := tcpProbe(intstr.FromInt32(80))
		switch kind {
		case probe.Startup:
			c.StartupProbe = p
		case probe.Readiness:
			c.ReadinessProbe = p
		case probe.Liveness:
			c.LivenessProbe = p
		}
	}
	return c
}

func TestStartedAndReady(t *testing.T) {
	const (
		startup   = probe.Startup
		readiness = probe.Readiness
	)
	type found = map[probe.Kind]probe.Outcome
	before := func(started, ready bool) *corev1.ContainerStatus {
		st := runningStatus("c")
		st.Started, st.Ready = &started, ready
		return st
	}
	other := before(true, true)
	other.ContainerID = "containerd://another"
	next := runningStatus("c")
	next.ContainerID = "containerd://next"
	for name, row := range map[string]struct {
		container      corev1.Container
		now, before    *corev1.ContainerStatus
		found          found
		started, ready bool
	}{
		"no probes":                       {container: probedContainer(), started: true, ready: true},
		"no probes, terminated":           {container: probedContainer(), now: exitedStatus("c", 0), before: before(true, true)},
		"startup not probed":              {container: probedContainer(startup)},
		"startup undecided":               {container: probedContainer(startup), found: found{startup: probe.Unknown}},
		"startup failed":                  {container: probedContainer(startup), found: found{startup: probe.Failure}, before: before(true, true)},
		"startup succeeded":               {container: probedContainer(startup), found: found{startup: probe.Success}, started: true, ready: true},
		"succeeded, then terminated":      {container: probedContainer(startup), found: found{startup: probe.Success}, now: exitedStatus("c", 0)},
		"readiness not probed":            {container: probedContainer(readiness), started: true},
		"readiness failed":                {container: probedContainer(readiness), found: found{readiness: probe.Failure}, started: true},
		"readiness succeeded":             {container: probedContainer(readiness), found: found{readiness: probe.Success}, started: true, ready: true},
		"ready, but not started":          {container: probedContainer(startup, readiness), found: found{readiness: probe.Success}},
		"result of the previous instance": {container: probedContainer(readiness), found: found{readiness: probe.Success}, now: next, started: true},

		"agent restarted":                 {container: probedContainer(startup, readiness), before: before(true, true), started: true, ready: true},
		"agent restarted, result unknown": {container: probedContainer(startup, readiness), before: before(true, true), found: found{startup: probe.Unknown, readiness: probe.Unknown}, started: true, ready: true},
		"agent restarted, not ready":      {container: probedContainer(startup, readiness), before: before(true, false), started: true},
		"agent restarted, other instance": {container: probedContainer(startup, readiness), before: other},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(row.container)
			now := row.now
			if now == nil {
				now = runningStatus("c")
			}
			r := fixedResults(row.found)
			assert.Equal(t, row.started, podprobe.Started(pod, &pod.Spec.Containers[0], now, row.before, r), "started")
			assert.Equal(t, row.ready, podprobe.Ready(pod, &pod.Spec.Containers[0], now, row.before, r), "ready")
		})
	}
}

// An init container is ready after it has terminated with exit code 0; a sidecar is ready like a regular container.
func TestInitContainerReadyAfterExitCode0(t *testing.T) {
	pod := newPod()
	sidecar := probedContainer(probe.Readiness)
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, sidecar}
	ready := func(i int, st *corev1.ContainerStatus, found map[probe.Kind]probe.Outcome) bool {
		return podprobe.Ready(pod, &pod.Spec.InitContainers[i], st, nil, fixedResults(found))
	}
	assert.False(t, ready(0, runningStatus("i"), nil))
	assert.False(t, ready(0, exitedStatus("i", 1), nil))
	assert.True(t, ready(0, exitedStatus("i", 0), nil))
	assert.False(t, ready(1, runningStatus("c"), nil))
	assert.True(t, ready(1, runningStatus("c"), map[probe.Kind]probe.Outcome{probe.Readiness: probe.Success}))
	assert.False(t, ready(1, exitedStatus("c", 0), map[probe.Kind]probe.Outcome{probe.Readiness: probe.Success}))
}

func TestMustKill(t *testing.T) {
	type found = map[probe.Kind]probe.Outcome
	both := found{probe.Startup: probe.Failure, probe.Liveness: probe.Failure}
	for name, row := range map[string]struct {
		found     found
		policy    corev1.RestartPolicy
		container *corev1.ContainerRestartPolicy
		sidecar   bool
		now       *corev1.ContainerStatus
		want      string
		restart   bool
		kind      probe.Kind
	}{
		"nothing known": {},
		"all well":      {found: found{probe.Startup: probe.Success, probe.Liveness: probe.Success, probe.Readiness: probe.Failure}},
		"liveness": {
			found: found{probe.Liveness: probe.Failure},
			want:  "Container c failed liveness probe, will be restarted", restart: true, kind: probe.Liveness,
		},
		"startup": {
			found: found{probe.Startup: probe.Failure}, policy: corev1.RestartPolicyOnFailure,
			want: "Container c failed startup probe, will be restarted", restart: true, kind: probe.Startup,
		},
		"both":           {found: both, want: "Container c failed liveness probe, will be restarted", restart: true, kind: probe.Liveness},
		"never":          {found: both, policy: corev1.RestartPolicyNever, want: "Container c failed liveness probe", kind: probe.Liveness},
		"container only": {found: both, container: &never, want: "Container c failed liveness probe", kind: probe.Liveness},
		"policy of the container overrides the pod": {
			found: both, policy: corev1.RestartPolicyNever, container: &always,
			want: "Container c failed liveness probe, will be restarted", restart: true, kind: probe.Liveness,
		},
		"sidecar": {
			found: both, policy: corev1.RestartPolicyNever, container: &always, sidecar: true,
			want: "Init container c failed startup probe", restart: true, kind: probe.Startup,
		},
		"not running": {found: both, now: exitedStatus("c", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			c := probedContainer(probe.Startup, probe.Readiness, probe.Liveness)
			c.RestartPolicy = row.container
			pod := newPod(c)
			pod.Spec.RestartPolicy = row.policy
			if row.sidecar {
				pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
			}
			now := row.now
			if now == nil {
				now = runningStatus("c")
			}
			kill, must := podprobe.MustKill(pod, &c, now, fixedResults(row.found))
			assert.Equal(t, row.want != "", must)
			want := podprobe.Kill{Kind: row.kind, Message: row.want, Restart: row.restart}
			if must {
				want.GracePeriod = 2 * time.Second
			}
			assert.Equal(t, want, kill)
		})
	}
}

func TestGracePeriodPrecedence(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for name, row := range map[string]struct {
		deletion, pod, probe *int64
		want                 time.Duration
	}{
		"probe shorter than the pod":        {pod: seconds(30), probe: seconds(5), want: 5 * time.Second},
		"probe longer than the pod":         {pod: seconds(30), probe: seconds(60), want: 60 * time.Second},
		"deletion overrides pod and probe":  {deletion: seconds(10), pod: seconds(30), probe: seconds(60), want: 10 * time.Second},
		"deletion below the minimum":        {deletion: seconds(1), pod: seconds(30), probe: seconds(5), want: 2 * time.Second},
		"pod":                               {pod: seconds(30), want: 30 * time.Second},
		"probe, pod without a grace period": {probe: seconds(60), want: 2 * time.Second},
		"nothing":                           {want: 2 * time.Second},
		"zero":                              {pod: seconds(0), want: 2 * time.Second},
		"negative":                          {pod: seconds(30), probe: seconds(-5), want: 2 * time.Second},
		"for ever":                          {pod: seconds(1<<63 - 1), want: (1 << 32) * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod()
			pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = row.deletion, row.pod
			assert.Equal(t, row.want, podprobe.GracePeriod(pod, &corev1.Probe{TerminationGracePeriodSeconds: row.probe}))
		})
	}
	assert.Equal(t, 2*time.Second, podprobe.GracePeriod(newPod(), nil))
}
