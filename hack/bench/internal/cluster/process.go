// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"path/filepath"

	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
)

// subject is an agent to measure: its name, and how to start its process as a node, with a kubeconfig, in a directory.
type subject struct {
	name  string
	start func(b *bench, node, kubeconfig, dir string) (*process.Process, error)
}

// startAgent starts examples/agent.
func (b *bench) startAgent(node, kubeconfig, dir string) (*process.Process, error) {
	return process.StartAgent(b.agent, dir, map[string]any{
		"nodeName": node, "kubeconfig": kubeconfig, "nodeIPs": []string{b.address}, "containerRuntimeEndpoint": b.endpoint, "cgroupRoot": b.cgroupRoot,
		"rootDir": filepath.Join(dir, "state"), "podLogsDir": filepath.Join(dir, "logs"), "maxPods": b.pods + 10, "logLevel": "WARN",
		"imageGCHighThresholdPercent": 100,   // never remove images because of a full disk
		"enableServer":                false, // as for the kubelet: only bench api measures the HTTP server
	})
}

// startKubelet starts a kubelet.
func (b *bench) startKubelet(node, kubeconfig, dir string) (*process.Process, error) {
	return process.Start(b.kubelet, dir, map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": b.endpoint,
		"podLogsDir": filepath.Join(dir, "logs"), "volumePluginDir": filepath.Join(dir, "plugins"), "maxPods": b.pods + 10, "podPidsLimit": -1,
		"enableServer": false, "healthzPort": 0, "readOnlyPort": 0,
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "0%"},
	}, "--config={}", "--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+filepath.Join(dir, "pki"), "--kubeconfig="+kubeconfig,
		"--hostname-override="+node, "--node-ip="+b.address, "--v=0")
}
