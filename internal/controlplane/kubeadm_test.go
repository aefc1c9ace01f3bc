// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// kubeadm writes the files that an agent needs, without paths of host files and without ports that may be in use.
func TestKubeadm(t *testing.T) {
	c := controlplane.PrepareKubeadm(t, "n1", netip.MustParseAddr("192.0.2.1"))
	require.Regexp(t, `^https://192\.0\.2\.1:[0-9]+$`, c.URL())
	images := controlplane.Images()
	path := regexp.MustCompile(`hostPath:\n +path: (.*)`)
	for _, name := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler} {
		manifest := c.Manifests[name+".yaml"]
		require.Contains(t, manifest, "image: "+images[name]+"\n")
		require.Contains(t, manifest, "  - command:\n    - "+name+"\n")
		require.Contains(t, manifest, "hostNetwork: true\n")
		require.NotRegexp(t, `\b(6443|2379|2380|2381|10257|10259)\b`, manifest)
		paths := path.FindAllStringSubmatch(manifest, -1)
		require.NotEmpty(t, paths)
		for _, found := range paths {
			require.True(t, strings.HasPrefix(found[1], c.Root+"/"), "%s: %s", name, found[1])
		}
	}
	require.Len(t, c.Manifests, 4)
	for _, file := range []string{"pki/ca.crt", "pki/etcd/server.key", "kubelet.conf", "controller-manager.conf", "scheduler.conf"} {
		require.FileExists(t, filepath.Join(c.Root, "etc", "kubernetes", file))
	}
	config, err := c.Kubeconfig("system:node:n1", "system:nodes")
	require.NoError(t, err)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Contains(t, string(text), c.URL())
}
