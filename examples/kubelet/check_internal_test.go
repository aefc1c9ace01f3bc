// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/changeover"
)

// programVariable makes the test binary run as the program, with its arguments.
const programVariable = "KUBELET_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checkNode is a node with a container runtime in memory, a static pod and the configuration of a kubelet.
type checkNode struct {
	*testing.T
	runtime *critest.Runtime
	dir     string
}

func newCheckNode(t *testing.T) *checkNode {
	n := &checkNode{T: t, runtime: critest.New(critest.Options{}), dir: t.TempDir()}
	l, err := net.Listen("unix", n.path("cri.sock"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var server sync.WaitGroup
	server.Go(func() { assert.NoError(t, criserver.New(n.runtime, criserver.Options{}).Serve(ctx, l)) })
	t.Cleanup(func() { stop(); server.Wait() })
	n.write("manifests/web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: i}]}\n")
	n.write("config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: `+n.path("manifests")+`
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
`)
	return n
}

func (n *checkNode) path(name string) string { return filepath.Join(n.dir, name) }

func (n *checkNode) write(name, text string) {
	require.NoError(n, os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	require.NoError(n, os.WriteFile(n.path(name), []byte(text), 0o600))
}

// check runs the program with the argument check and the flags of a kubelet on the node, and returns its output and exit code.
func (n *checkNode) check(flags ...string) (stdout, stderr string, code int) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	args := append([]string{
		"check", "--config=" + n.path("config.yaml"), "--root-dir=" + n.path("state"), "--hostname-override=n1", "--container-runtime-endpoint=unix://" + n.path("cri.sock"),
	}, flags...)
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), programVariable+"=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		require.True(n, ok, err)
		code = exit.ExitCode()
	}
	return out.String(), errs.String(), code
}

// Scripts decide by the exit code of check: 0 if nothing changes, 1 if a pod or a setting does, 2 if the node could not be read. The report is on
// standard output, as text or as JSON, and errors are on standard error.
func TestCheckReportsAndExits(t *testing.T) {
	n := newCheckNode(t)
	stdout, stderr, code := n.check()
	assert.Equal(t, "pod default/web-n1: keeps\n1 pods, keeps 1\n", stdout)
	assert.Empty(t, stderr)
	assert.Equal(t, changeover.ExitKeeps, code)
	require.NoDirExists(t, n.path("state"), "check creates no file")

	_, err := n.runtime.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u", Name: "hand", Namespace: "ns"}})
	require.NoError(t, err)
	stdout, stderr, code = n.check()
	assert.Equal(t, "pod default/web-n1: keeps\npod ns/hand: stops: no source lists it: its containers are removed\n2 pods, keeps 1, stops 1\n", stdout)
	assert.Empty(t, stderr)
	assert.Equal(t, changeover.ExitChanges, code)

	for _, format := range [][]string{{"-o", "json"}, {"--output=json"}} {
		stdout, stderr, code = n.check(append(format, "--contention-profiling", "--max-pods=-1")...)
		var report changeover.Report
		require.NoError(t, json.Unmarshal([]byte(stdout), &report), stdout)
		require.Len(t, report.Pods, 2)
		assert.Equal(t, changeover.PodReport{Namespace: "default", Name: "web-n1", UID: report.Pods[0].UID, Outcome: changeover.Keeps, Reasons: []string{}}, report.Pods[0])
		assert.Equal(t, changeover.Stops, report.Pods[1].Outcome)
		require.Len(t, report.Settings, 2, stdout)
		assert.Contains(t, report.Settings[0], `--contention-profiling=true: `)
		assert.Contains(t, report.Settings[1], `--max-pods=-1: maxPods: -1 is not between`)
		assert.Empty(t, stderr)
		assert.Equal(t, changeover.ExitChanges, code)
	}
}

// Each node that cannot be read, and each wrong command line, has exit code 2 and an error that names its cause.
func TestCheckExitsWith2WithoutReport(t *testing.T) {
	n := newCheckNode(t)
	n.write("broken.yaml", "apiVersion: v1\nkind: Pod\n")
	for _, c := range []struct {
		flag, want string
	}{
		{"--output=yaml", `--output: "yaml" is neither text nor json`},
		{"-o", "-o: the value is missing, want text or json"},
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"--config=" + n.path("missing.yaml"), n.path("missing.yaml") + ": no such file or directory"},
		{"--config=" + n.path("broken.yaml"), n.path("broken.yaml") + `: apiVersion and kind: "v1" and "Pod" are not supported`},
		{"--container-runtime-endpoint=unix://" + n.path("missing.sock"), "list the containers of unix://" + n.path("missing.sock")},
	} {
		stdout, stderr, code := n.check(c.flag)
		assert.Empty(t, stdout, c.flag)
		assert.Contains(t, stderr, "Error: ", c.flag)
		assert.Contains(t, stderr, c.want, c.flag)
		assert.Equal(t, changeover.ExitUnread, code, c.flag)
	}
	// With a runtime the pods are reported although other sources cannot be read.
	stdout, stderr, code := n.check("--kubeconfig=" + n.path("missing.conf"))
	assert.Contains(t, stdout, "not read: pods of the API server: ")
	assert.Contains(t, stdout, "pod default/web-n1: keeps\n")
	assert.Empty(t, stderr)
	assert.Equal(t, changeover.ExitUnread, code)
}
