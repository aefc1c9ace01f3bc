// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// kubeletAgent runs a kubelet without an API server. Its HTTP server, cgroups per QoS class and image garbage collection are
// disabled, which makes it cheaper than in a cluster: the comparison errs in its favour.
func kubeletAgent(binary string) (agent, error) {
	path, err := findBinary(binary)
	if err != nil {
		return agent{}, err
	}
	return agent{
		Name:   "kubelet",
		Binary: path,
		Command: []string{
			binary, "--config={work}/kubelet.json", "--root-dir={work}/root", "--cert-dir={work}/pki",
			"--hostname-override=bench", "--v=0",
		},
		prepare: func(p paths) error {
			text, err := json.MarshalIndent(kubeletConfig(p), "", "  ")
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(p.work, "kubelet.json"), text, 0o600)
		},
	}, nil
}

// kubeletConfig is the KubeletConfiguration of the measurement. Settings that cost time at rest (relist, sync, housekeeping,
// stats, eviction) keep their defaults.
func kubeletConfig(p paths) map[string]any {
	return map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"staticPodPath":            p.manifests,
		"containerRuntimeEndpoint": p.cri,
		"podLogsDir":               filepath.Join(p.work, "logs"),
		"volumePluginDir":          filepath.Join(p.work, "plugins"),
		"registerNode":             false,
		"maxPods":                  10000,
		"podPidsLimit":             -1,

		"enableServer":   false,
		"healthzPort":    0,
		"readOnlyPort":   0,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},

		"cgroupDriver":           "cgroupfs",
		"cgroupsPerQOS":          false,
		"enforceNodeAllocatable": []string{},
		"failCgroupV1":           false,
		"failSwapOn":             false,
		"makeIPTablesUtilChains": false,

		// A benchmark must not remove images or evict pods because the disk of the machine is full.
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "0%",
		},
	}
}
