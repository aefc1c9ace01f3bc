// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

func ExamplePlugins() {
	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		fmt.Println(name)
	}
	root, _ := os.MkdirTemp("", "pods")
	defer os.RemoveAll(root)
	_, err := volume.New(volume.Options{Root: root, Plugins: plugins})
	fmt.Println(err)
	// Output:
	// kubernetes.io/configmap
	// kubernetes.io/downward-api
	// kubernetes.io/empty-dir
	// kubernetes.io/git-repo
	// kubernetes.io/host-path
	// kubernetes.io/local-volume
	// kubernetes.io/nfs
	// kubernetes.io/projected
	// kubernetes.io/secret
	// <nil>
}
