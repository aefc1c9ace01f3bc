// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/lab"
)

func TestPrint(t *testing.T) {
	var out strings.Builder
	printTable(&out, []figures{
		{Subject: floorName, Values: map[metric]float64{execP50: 2}},
		{Subject: "agent", Values: map[metric]float64{execP50: 3, logCPU: 10}},
		{Subject: "agent", Repeat: 1, Values: map[metric]float64{execP50: 5}},
		{Subject: "kubelet", Values: map[metric]float64{execP50: 8, logCPU: -1}},
	})
	lines := map[metric][]string{}
	for line := range strings.Lines(out.String()) {
		for _, m := range metrics() {
			if rest, found := strings.CutPrefix(strings.TrimSpace(line), string(m)); found {
				lines[m] = strings.Fields(rest)
			}
		}
	}
	require.Len(t, lines, len(metrics()))
	require.Equal(t, []string{"2.000", "4.000", "8.000", "0.500", "2.000", "4.000"}, lines[execP50])
	require.Equal(t, []string{"-", "10.000", "-1.000", "-", "-", "-"}, lines[logCPU])
}

// writeLog writes complete lines, and drain returns an error for a log that is shorter than expected.
func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	written, content, err := writeLog(file, 1000)
	require.NoError(t, err)
	require.Equal(t, []int64{7 * (40 + 101), 7 * 101}, []int64{written, content})
	open := func(context.Context) (io.ReadCloser, error) { return os.Open(file) }
	require.NoError(t, drain(t.Context(), open, written))
	require.ErrorContains(t, drain(t.Context(), open, written+1), "987 bytes came of 988")
}

func TestSucceeded(t *testing.T) {
	bad := errors.New("bad")
	require.NoError(t, succeeded(`{"metadata":{},"status":"Success"}`, nil))
	require.ErrorIs(t, succeeded(`{"status":"Success"}`, bad), bad)
	require.ErrorContains(t, succeeded("", nil), `status ""`)
	require.ErrorContains(t, succeeded(`{"status":"Failure"}`, nil), "Failure")
}

func TestOptions(t *testing.T) {
	good := options{endpoint: "unix:///x", image: "i", agent: "a", cgroupRoot: "/c", log: 1, scrapes: 1, execs: 1, parallel: 1, idle: 1, repeat: 1, rest: 1, monitored: 1}
	list, err := good.subjects()
	require.NoError(t, err)
	require.Len(t, list, 1)
	for want, change := range map[string]func(*options){
		"-cri and -image are needed":   func(o *options) { o.image = "" },
		"-n not negative":              func(o *options) { o.pods = -1 },
		"must be positive":             func(o *options) { o.idle = 0 },
		"-agent needs -cgroup-root":    func(o *options) { o.cgroupRoot = "" },
		"-agent or -kubelet is needed": func(o *options) { o.agent = "" },
	} {
		o := good
		change(&o)
		_, err := o.subjects()
		require.ErrorContains(t, err, want)
	}
}

// createCgroup creates the cgroup for the pods of the agent, named after the lab, and removes it at the end of the test.
func createCgroup(t *testing.T, l *lab.Lab) string {
	t.Helper()
	whole, err := driver.Open(t.Context(), driver.Options{})
	require.NoError(t, err)
	root, err := cgroups.NewPath("nodeagent-test-bench-api-" + filepath.Base(l.StateDir()))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), 30*time.Second)
		defer end()
		require.NoError(t, whole.Remove(ctx, root))
		require.NoError(t, whole.Close())
	})
	require.NoError(t, whole.Apply(t.Context(), root, cgroups.Resources{}))
	return "/" + string(root)
}

// A small run yields all figures of agent, kubelet and floor, and leaves no containers, sandboxes or files.
func TestClusterBenchAPI(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	bin, l := controlplane.RequirePrograms(t, "kubelet"), lab.StartPrivate(t)
	agent := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../..", "-buildvcs=false", "-o", agent, "./examples/agent")
	built, err := build.CombinedOutput()
	require.NoError(t, err, "%s", built)
	o := options{
		endpoint: l.Endpoint(), image: lab.BusyboxImage, agent: agent, cgroupRoot: createCgroup(t, l), kubelet: filepath.Join(bin, "kubelet"), pods: 2, log: 8, scrapes: 3,
		execs: 4, parallel: 4, idle: 4, repeat: 1, settle: time.Second, rest: time.Second, monitored: time.Second, limit: 2 * time.Minute, grace: 10 * time.Second,
		json: filepath.Join(t.TempDir(), "out.json"),
	}
	var out strings.Builder
	require.NoError(t, measure(t.Context(), o, &out), out.String())
	t.Log(out.String())
	text, err := os.ReadFile(o.json)
	require.NoError(t, err)
	var all []figures
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 4)
	for _, f := range all {
		want := metrics()
		if f.Subject == floorName {
			want = floorMetrics()
		}
		assert.Len(t, f.Values, len(want), f.Subject)
		for _, m := range want {
			assert.Contains(t, f.Values, m, f.Subject)
		}
		for _, m := range floorMetrics() {
			assert.Positive(t, f.Values[m], "%s: %s", f.Subject, m)
		}
	}
	require.Eventually(t, func() bool { // the last shim exits a little later
		left, err := l.Leftovers(t.Context())
		return err == nil && len(left) == 0
	}, time.Minute, 50*time.Millisecond)
}
