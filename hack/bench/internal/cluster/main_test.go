// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// A pod counts as running from the first event with phase Running. A container counts as dead from the first status with its
// terminated state, in State or in LastTerminationState.
func TestWatcher(t *testing.T) {
	w, at := newWatcher(), time.Unix(0, 0)
	event := func(kind string, phase corev1.PodPhase, states ...corev1.ContainerState) {
		at = at.Add(time.Second)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Phase: phase}}
		if len(states) > 0 {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: states[0], LastTerminationState: states[1]}}
		}
		w.recordEvent(kind, pod, at)
	}
	dead := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	event("ADDED", corev1.PodPending)
	require.Empty(t, w.running)
	event("MODIFIED", corev1.PodRunning)
	event("MODIFIED", corev1.PodRunning, dead("first"), corev1.ContainerState{})
	event("MODIFIED", corev1.PodRunning, corev1.ContainerState{}, dead("first"))
	event("MODIFIED", corev1.PodRunning, corev1.ContainerState{}, dead("second"))
	require.Equal(t, map[string]time.Time{"p": time.Unix(2, 0)}, w.running)
	require.Equal(t, map[string]time.Time{"first": time.Unix(3, 0), "second": time.Unix(5, 0)}, w.died)
	require.Len(t, w.now, 1)
	event("DELETED", corev1.PodSucceeded)
	require.Empty(t, w.now)

	gone := errors.New("gone")
	err := w.await(t.Context(), time.Minute, "pods run", func() error { return gone }, func() bool { return false })
	require.ErrorIs(t, err, gone)
	require.ErrorContains(t, err, "wait until pods run: gone")
	err = w.await(t.Context(), 0, "pods run", func() error { return nil }, func() bool { return false })
	require.EqualError(t, err, "wait until pods run: not within 0s")
	require.NoError(t, w.await(t.Context(), 0, "pods run", func() error { return gone }, func() bool { return true }))
}

func TestParse(t *testing.T) {
	floor, err := parseFloor([]byte(`{"samples":[
		{"subject":"floor","parallel":4,"values":{"start_s":[3]}},{"subject":"floor","parallel":8,"values":{"start_s":[2]}},
		{"subject":"floor","parallel":4,"values":{"start_s":[3.5]}},{"subject":"floor","parallel":8,"values":{"start_s":[2.5]}},
		{"subject":"agent","values":{"start_s":[1]}}]}`))
	require.NoError(t, err)
	require.InDelta(t, 2.25, floor, 0)
	for _, bad := range []string{"{", `{"samples":[{"subject":"floor"}]}`} {
		_, err = parseFloor([]byte(bad))
		require.ErrorContains(t, err, "parse figures of the floor", bad)
	}
}

// each starts no further calls after an error or after its context has ended.
func TestEach(t *testing.T) {
	done := make([]bool, 100)
	require.NoError(t, each(t.Context(), len(done), func(i int) error { done[i] = true; return nil }))
	require.NotContains(t, done, false)
	bad, calls := errors.New("bad"), make(chan int, 1000)
	require.ErrorIs(t, each(t.Context(), 1000, func(i int) error { calls <- i; return bad }), bad)
	require.LessOrEqual(t, len(calls), parallel)
	ctx, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, each(ctx, 1, func(int) error { return nil }), context.Canceled)
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	printTable(&out, []figures{
		{Subject: floorName, Values: map[metric]float64{runningSeconds: 2}},
		{Subject: "agent", Values: map[metric]float64{runningSeconds: 3, restRequests: 10}, Rest: map[string]int{"get nodes": 1, "update leases": 9}},
		{Subject: "agent", Repeat: 1, Values: map[metric]float64{runningSeconds: 5, restRequests: 10}},
		{Subject: "kubelet", Values: map[metric]float64{runningSeconds: 8}},
	})
	lines := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		for _, m := range metrics() {
			if rest, found := strings.CutPrefix(strings.TrimSpace(line), string(m)); found {
				lines[string(m)] = strings.Fields(rest)
			}
		}
	}
	require.Equal(t, []string{"2.000", "4.000", "8.000", "0.500", "2.000"}, lines[string(runningSeconds)])
	require.Equal(t, []string{"-", "10.000", "-", "-", "-"}, lines[string(restRequests)])
	require.Contains(t, out.String(), "requests of agent in repeat 1, at rest: 9 update leases, 1 get nodes\n")
}

func TestOptions(t *testing.T) {
	good := options{endpoint: "unix:///x", image: "i", bridge: "b", agent: "a", pods: 1, repeat: 1, rest: 1}
	list, err := good.subjects()
	require.NoError(t, err)
	require.Len(t, list, 1)
	for want, change := range map[string]func(*options){
		"-bridge are needed":           func(o *options) { o.bridge = "" },
		"-kills at most -n":            func(o *options) { o.kills = 2 },
		"-agent or -kubelet is needed": func(o *options) { o.agent = "" },
	} {
		o := good
		change(&o)
		_, err := o.subjects()
		require.ErrorContains(t, err, want)
	}
}

// A small run yields all figures of agent and kubelet, and leaves no containers, sandboxes or files.
func TestClusterBench(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	bin, l := controlplane.RequirePrograms(t, "kubelet"), lab.StartPrivate(t)
	agent := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../..", "-buildvcs=false", "-o", agent, "./examples/agent")
	built, err := build.CombinedOutput()
	require.NoError(t, err, "%s", built)
	o := options{
		endpoint: l.Endpoint(), image: lab.BusyboxImage, bridge: l.Bridge(), bin: bin, agent: agent, kubelet: filepath.Join(bin, "kubelet"),
		pods: 3, kills: 1, services: 20, repeat: 1, settle: 0, rest: 12 * time.Second, limit: 2 * time.Minute, grace: 10 * time.Second, hurry: true,
		json: filepath.Join(t.TempDir(), "out.json"),
	}
	var out strings.Builder
	require.NoError(t, measure(t.Context(), o, &out), out.String())
	t.Log(out.String())
	text, err := os.ReadFile(o.json)
	require.NoError(t, err)
	var all []figures
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 2)
	for _, f := range all {
		for _, m := range metrics() {
			assert.Contains(t, f.Values, m, f.Subject)
		}
		assert.GreaterOrEqual(t, f.Values[statusPatches], 3.0, "at least one status patch per pod")
		assert.Positive(t, f.Rest["create leases"]+f.Rest["update leases"], "%s: %v", f.Subject, f.Rest)
	}
	require.Eventually(t, func() bool { // the last shim exits a little later
		left, err := l.Leftovers(t.Context())
		return err == nil && len(left) == 0
	}, time.Minute, 50*time.Millisecond)
}
