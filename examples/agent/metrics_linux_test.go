// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/promtest"
)

// measuredPod has all features of a running pod that metrics measure: an init container, probes, hooks, limits, and a volume
// with a claim.
const measuredPod = `apiVersion: v1
kind: Pod
metadata: {name: measured}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
    - {name: data, persistentVolumeClaim: {claimName: dir}}
    - {name: disk, emptyDir: {}}
  initContainers:
    - {name: setup, image: "nodeagent.test/busybox:1", command: [sh, -c, "head -c 65536 /dev/zero > /disk/file"], volumeMounts: [{name: disk, mountPath: /disk}]}
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
      lifecycle: {postStart: {exec: {command: ["true"]}}}
      volumeMounts: [{name: data, mountPath: /data}, {name: disk, mountPath: /disk}]
`

// unfedFamilies are metric families without values on a healthy node without a cluster, by the event that they need.
var unfedFamilies = map[string][]string{
	"an API server": {
		"kubelet_certificate_manager_*", "kubelet_server_expiration_renew_errors", "kubelet_node_startup_*", "kubelet_pod_start_sli_duration_seconds",
		"kubelet_pod_start_total_duration_seconds", "kubelet_pod_status_sync_duration_seconds", "kubelet_first_network_pod_start_sli_duration_seconds",
	},
	"a failure": {"kubelet_admission_rejections_total", "kubelet_run_podsandbox_errors_total", "kubelet_started_containers_errors_total", "kubelet_runtime_operations_errors_total"},
	"pressure":  {"kubelet_eviction_stats_age_seconds", "kubelet_evictions", "kubelet_preemptions", "kubelet_image_garbage_collected_total"},
	"a resize": {
		"kubelet_container_requested_resizes_total", "kubelet_pod_deferred_accepted_resizes_total", "kubelet_pod_deferred_resize_duration_seconds",
		"kubelet_pod_infeasible_resizes_total", "kubelet_pod_pending_resizes", "kubelet_pod_resize_duration_milliseconds", "kubelet_pod_level_resources_admission_total",
	},
	"another client": {
		"kubelet_pod_requests_*", "kubelet_websocket_streaming_requests_total", "kubelet_pod_watch_events_dropped_total", "kubelet_pod_resources_endpoint_*",
	},
	"a device plugin": {"kubelet_device_plugin_*", "kubelet_container_aligned_compute_resources_*"},
	"the CPU manager": {"kubelet_cpu_manager_allocation_per_numa"},
	"a CSI driver":    {"csi_operations_seconds"},
	"a pull":          {"kubelet_image_pull_duration_seconds"},
	"a shutdown":      {"kubelet_graceful_shutdown_*"},
}

// The pages of a running agent have all metric families that are listed as equal to the kubelet's, except unfedFamilies. The
// metrics of a claim are those of its file system.
func TestIntegrationMetrics(t *testing.T) {
	n := newNode(t)
	dir, port := t.TempDir(), exetest.FreePort(t)
	n.objects.Write("persistentvolumes/pv-dir.yaml", fmt.Sprintf(diskYAML, "pv-dir", "Filesystem", "dir", dir, "n1"))
	n.objects.Write("default/persistentvolumeclaims/dir.yaml", fmt.Sprintf(diskClaimYAML, "dir", "pv-dir", "", "Filesystem"))
	n.manifests.Write("measured.yaml", measuredPod)
	n.manifests.Write("crash.yaml", podYAML("crash", "exit 3"))
	a := n.start(withReadOnlyPort(t, port, map[string]any{}))
	n.awaitRunning(timeout, "measured-n1")
	page := func(path string) string {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", port, path))
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", path, text)
		return string(text)
	}
	const claim = `{namespace="default",persistentvolumeclaim="dir"}`
	var all string
	exetest.Eventually(t, 3*time.Minute, func() error { // volumes are measured once a minute
		all = page("metrics")
		if !strings.Contains(all, "kubelet_volume_stats_used_bytes"+claim) {
			return fmt.Errorf("the claim is not measured")
		}
		if !strings.Contains(all, "kubelet_running_containers{") { // counted by the full relist every 10 s
			return fmt.Errorf("no running container is counted")
		}
		return nil
	})
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(all))
	require.NoError(t, err)
	value := func(name string) float64 { return families[name].GetMetric()[0].GetGauge().GetValue() }
	require.Equal(t, value("kubelet_volume_stats_capacity_bytes"), fileSystemSize(t, dir), "the capacity is that of the claim's file system")
	require.Contains(t, page("stats/summary"), `"pvcRef": {`)
	require.Contains(t, all, "kubelet_mirror_pods 0\n")

	for path, list := range map[string]string{
		"metrics": "../../nodeapi/prom/testdata/metrics.txt", "metrics/probes": "../../nodeapi/prom/testdata/probes.txt",
		"metrics/slis": "../../nodeapi/prom/testdata/slis.txt", "metrics/resource": "../../nodeapi/prom/usage/testdata/resource.txt",
		"metrics/cadvisor": "../../nodeapi/prom/usage/testdata/cadvisor.txt",
	} {
		verdicts, err := os.ReadFile(list)
		require.NoError(t, err)
		exetest.Eventually(t, time.Minute, func() error { // some values are measured in the background
			live, err := promtest.Parse(strings.NewReader(page(path)))
			require.NoError(t, err)
			var lacking []string
			for line := range strings.Lines(string(verdicts)) {
				name, ok := strings.CutPrefix(strings.TrimSpace(line), "same ")
				there := slices.ContainsFunc(live, func(f promtest.Family) bool { return f.Name == name })
				if ok && !there && !isExcused(name) {
					lacking = append(lacking, name)
				}
			}
			if len(lacking) > 0 {
				return fmt.Errorf("families without values in /%s: %v", path, lacking)
			}
			return nil
		})
	}
	// The agent must not be killed while it restarts this container: containerd 2.4 can lose a shim if the caller of
	// StartContainer dies during the call. No CRI call shows it.
	n.manifests.Remove("crash.yaml")
	a.AwaitLine(timeout, "pod is removed", "crash-n1")
	n.drain(a)
}

// isExcused reports whether a family needs an event that the test does not cause, or a feature that this machine may lack.
func isExcused(name string) bool {
	for _, names := range unfedFamilies {
		for _, pattern := range names {
			if ok, _ := filepath.Match(pattern, name); ok {
				return true
			}
		}
	}
	return strings.Contains(name, "pressure") || strings.Contains(name, "swap") // PSI metrics need cgroup v2, swap metrics need swap
}

// fileSystemSize returns the size of the file system of a directory in bytes.
func fileSystemSize(t *testing.T, dir string) float64 {
	t.Helper()
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &s))
	return float64(s.Blocks) * float64(s.Frsize)
}
