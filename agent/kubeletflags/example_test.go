// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
)

func ExampleParse() {
	line, err := kubeletflags.Parse([]string{"--config=/var/lib/kubelet/config.yaml", "--max-pods=64", "--node-labels=tier=edge"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, warning := range line.Warnings {
		fmt.Println(warning[:36], "...")
	}
	// A program passes kubeletconfig.LoadDir.
	config, err := line.Load(func(file, _ string) (kubeletconfig.Documents, error) {
		return kubeletconfig.Documents{Kubelet: kubeletconfig.Configuration{MaxPods: 10, PodsPerCore: 5}}, nil
	})
	fmt.Println(config.Kubelet.MaxPods, config.Kubelet.PodsPerCore, config.Node.NodeLabels, config.Node.RootDir, err)

	_, err = kubeletflags.Parse([]string{"--network-plugin=cni"})
	fmt.Println(err)
	// Output:
	// Flag --max-pods has been deprecated, ...
	// 64 5 map[tier:edge] /var/lib/kubelet <nil>
	// failed to parse kubelet flag: unknown flag: --network-plugin
}

func ExampleFlags() {
	for _, f := range kubeletflags.Flags() {
		if f.Name == "max-pods" || f.Name == "runtime-cgroups" {
			fmt.Println(f.Name, f.Type, f.State, f.Field)
		}
	}
	// Output:
	// max-pods int32 supported maxPods
	// runtime-cgroups string without effect
}
