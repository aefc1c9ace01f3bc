// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"os"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

func Example() {
	root, _ := os.MkdirTemp("", "pods")
	defer os.RemoveAll(root)
	plugins := map[string]volume.Plugin{volume.ConfigMap: &volumetest.MemoryPlugin{}}
	volumes, err := volume.New(volume.Options{Root: root, Plugins: plugins})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = volumes.Run(ctx) }()

	p := podWithConfigMaps("u1", "config")
	var launch podspec.Launch
	fmt.Println(volumes.Prepare(ctx, p))
	fmt.Println(volumes.Container(ctx, p, &p.Spec.Containers[0], &launch), len(launch.Volumes))
	fmt.Println(volumes.Release(ctx, "u1"))
	// Output:
	// <nil>
	// <nil> 1
	// <nil>
}
