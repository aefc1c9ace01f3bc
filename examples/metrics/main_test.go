// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers:
  - {name: server, image: nginx, readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}
`

// The pages have metrics of pods, relists, cgroups and probes.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600))
	address := fmt.Sprint("127.0.0.1:", exetest.FreePort(t))
	p := program.Start(t, "-listen", address, "-manifests", dir)
	p.AwaitLine(10*time.Second, "serving http://"+address)

	for path, lines := range map[string][]string{
		"/metrics": {
			`kubelet_running_pods 1`, `kubelet_desired_pods{static="true"} 1`, `kubelet_started_containers_total{container_type="container"} 1`,
			`kubelet_pleg_relist_duration_seconds_bucket`, `kubelet_cgroup_manager_duration_seconds_count{operation_type="create"}`,
			`go_goroutines`,
		},
		"/metrics/probes": {`prober_probe_total{container="server",namespace="shop",pod="web-memory"`},
	} {
		exetest.Eventually(t, 20*time.Second, func() error { return checkLines("http://"+address+path, lines) })
	}
	require.Zero(t, p.Terminate(10*time.Second))
}

// checkLines returns an error that names a missing line of a page.
func checkLines(url string, lines []string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if !strings.Contains(string(text), "\n"+line) {
			return fmt.Errorf("%s has no line %s", url, line)
		}
	}
	return nil
}

func TestNoManifests(t *testing.T) {
	p := program.Start(t)
	p.AwaitLine(10*time.Second, "-manifests is required")
	require.Equal(t, 2, p.Wait(10*time.Second))
}
