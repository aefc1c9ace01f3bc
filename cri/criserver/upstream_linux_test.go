// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// bareFailures are the tests of critest that fail on the lab's containerd itself, with the reason.
var bareFailures = map[string]string{
	"[k8s.io] Image Manager public image with digest should be pulled and removed [Conformance]": noImage,
	"[k8s.io] Security Context NoNewPrivs should allow privilege escalation when false":          noImage,
	"[k8s.io] Security Context NoNewPrivs should not allow privilege escalation when true":       noImage,
	"[k8s.io] Security Context bucket runtime should support MaskedPaths":                        "the test masks /bin/ls, which in busybox is the file of all programs",
}

const noImage = "the lab's registry cannot serve this image: it is pinned by digest, or contains a compiled program"

// TestIntegrationUpstreamCritest runs critest of sigs.k8s.io/cri-tools against containerd, and against a second containerd
// behind packages remote and criserver: each test must have the same result.
func TestIntegrationUpstreamCritest(t *testing.T) {
	program := lab.Tool(t, "critest")
	bare, between := lab.StartPrivate(t), lab.StartPrivate(t)
	mirrorImages(t, bare)
	mirrorImages(t, between)
	endpoint := serveOn(t, between)

	// Tests that use fixed host ports run on one side at a time; the tests without host ports run on the other side in
	// parallel.
	var results [2]map[string]testResult
	for i, endpoints := range [][2]string{{bare.Endpoint(), endpoint}, {endpoint, bare.Endpoint()}} {
		var ports, security, containers map[string]testResult
		var sides sync.WaitGroup
		sides.Go(func() { ports = runCritest(t, program, endpoints[0], "-ginkgo.skip", securityTests+"|"+containerTests) })
		sides.Go(func() { security = runCritest(t, program, endpoints[1], "-ginkgo.focus", securityTests) })
		sides.Go(func() { containers = runCritest(t, program, endpoints[1], "-ginkgo.focus", containerTests) })
		sides.Wait()
		results[i] = mergeResults(results[i], ports)
		results[1-i] = mergeResults(results[1-i], security, containers)
	}
	t.Logf("on containerd: %v; through remote and criserver: %v", countStates(results[0]), countStates(results[1]))
	assert.Equal(t, slices.Sorted(maps.Keys(results[0])), slices.Sorted(maps.Keys(results[1])))
	assert.Greater(t, countStates(results[0])["passed"], 80)
	for name, want := range results[0] {
		if want.State == "failed" && bareFailures[name] == "" {
			t.Errorf("containerd fails %q, which is not in bareFailures: %s", name, want.Failure.Message)
		}
		if got := results[1][name]; got.State != want.State {
			t.Errorf("%q: %s on containerd, %s through remote and criserver: %s%s", name, want.State, got.State, want.Failure.Message, got.Failure.Message)
		}
	}
}

// The names of tests that use no host port: the two longest of three parts.
const (
	securityTests  = "k8s.io. Security Context"
	containerTests = "k8s.io. (Multiple )?Container"
)

func mergeResults(results ...map[string]testResult) map[string]testResult {
	all := map[string]testResult{}
	for _, r := range results {
		maps.Copy(all, r)
	}
	return all
}

// serveOn serves the containerd of a lab on another socket until the test ends, and returns its endpoint.
func serveOn(t *testing.T, l *lab.Lab) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		assert.NoError(t, criserver.New(dialClient(t, l.Endpoint()), criserver.Options{}).Serve(ctx, listener))
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	return "unix://" + socket
}

// testResult is the result of one test of critest.
type testResult struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string // passed, failed, skipped or pending
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// runCritest returns the results of critest on the runtime at an endpoint, by name of the test. flag selects or skips tests.
func runCritest(t *testing.T, program, endpoint, flag, tests string) map[string]testResult {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), program, "-runtime-endpoint", endpoint, "-image-endpoint", endpoint,
		"-config", os.DevNull, "-ginkgo.seed", "1", "-ginkgo.no-color", "-ginkgo.succinct", "-ginkgo.json-report", report,
		"-ginkgo.flake-attempts", "2", flag, tests)
	cmd.Dir = t.TempDir()
	began := time.Now()
	output, runErr := cmd.CombinedOutput() // critest returns an error if a test fails
	t.Logf("critest %s %q on %s took %v", flag, tests, filepath.Base(endpoint), time.Since(began).Round(time.Second))
	data, err := os.ReadFile(report)
	var suites []struct{ SpecReports []testResult }
	if !assert.NoError(t, err, "critest ended with %v: %s", runErr, output) || !assert.NoError(t, json.Unmarshal(data, &suites)) ||
		!assert.Len(t, suites, 1) {
		return nil
	}
	results := map[string]testResult{}
	for _, s := range suites[0].SpecReports {
		name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
		selected := regexp.MustCompile(tests).MatchString(name) == (flag == "-ginkgo.focus")
		if s.LeafNodeType == "It" && selected {
			assert.NotContains(t, results, name)
			results[name] = s
		}
	}
	return results
}

func countStates(results map[string]testResult) map[string]int {
	n := map[string]int{}
	for _, s := range results {
		n[s.State]++
	}
	return n
}

// mirrorImages makes the lab's registry serve the images that critest pulls, under their names.
func mirrorImages(t *testing.T, l *lab.Lab) {
	t.Helper()
	host := "http://" + l.RegistryHost()
	for _, registry := range []string{"gcr.io", "registry.k8s.io"} {
		dir := filepath.Join(l.MirrorDir(), registry)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		text := "server = \"" + host + "\"\n[host.\"" + host + "\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600))
	}
	crane := func(args ...string) {
		t.Helper()
		output, err := exec.CommandContext(t.Context(), filepath.Join(l.BinDir(), "crane"), append(args, "--insecure")...).CombinedOutput()
		require.NoError(t, err, "crane %v: %s", args, output)
	}
	name := func(image string) string { return l.RegistryHost() + "/" + image }
	add := func(image string, files map[string]string) {
		t.Helper()
		layer := filepath.Join(t.TempDir(), "layer.tar")
		require.NoError(t, os.WriteFile(layer, packArchive(t, files), 0o600))
		crane("append", "--base", l.RegistryImage(), "--new_layer", layer, "--new_tag", name(image))
	}
	const busybox, tools = "e2e-test-images/busybox:1.29-2", "k8s-staging-cri-tools/"
	add(busybox, map[string]string{
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
		"etc/group":      "root:x:0:\nwww-data:x:33:\ngroup-defined-in-image:x:50000:default-user\nnogroup:x:65534:\n",
		"bin/pgrep":      "#!/bin/sh\ncd /proc && for p in [0-9]*; do grep -qx \"$1\" $p/comm && echo $p; done 2>/dev/null\n",
		"bin/ipcs":       "#!/bin/sh\ncat /proc/sysvipc/shm\n",
		"bin/nginx":      "#!/bin/sh\nmkdir -p /var/run && echo $$ >/var/run/nginx.pid && echo httpd && httpd -f -p $1 -h /www\n",
		"www/index.html": "served\n",
	})
	for image, args := range map[string][]string{
		"test-image-user-uid":            {"--user", "1002"},
		"test-image-user-username":       {"--user", "www-data"},
		"test-image-user-uid-group":      {"--user", "1003:1004"},
		"test-image-user-username-group": {"--user", "www-data:1004"},
		"test-image-predefined-group":    {"--user", "1000"},
		"hostnet-nginx-amd64":            {"--cmd", "nginx,12003,master process"},
		"hostnet-nginx-arm64":            {"--cmd", "nginx,12003,master process"},
	} {
		crane(slices.Concat([]string{"mutate", name(busybox)}, args, []string{"--tag", name(tools + image)})...)
	}
	for _, image := range []string{"nginx:1.14-2", "httpd:2.4.39-4"} {
		crane("mutate", name(busybox), "--cmd", "nginx,80,master process", "--tag", name("e2e-test-images/"+image))
	}
	for _, image := range []string{"test-image-latest", "test-image-tag:test", "test-image-tag:all", "test-image-1", "test-image-2", "test-image-3", "test-image-tags:1"} {
		add(tools+image, map[string]string{"name": image})
	}
	for _, tag := range []string{"2", "3"} {
		crane("tag", name(tools+"test-image-tags:1"), tag)
	}
}

// packArchive returns a tar archive of files.
func packArchive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(files[path]))}))
		_, err := w.Write([]byte(files[path]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return archive.Bytes()
}
