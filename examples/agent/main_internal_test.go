// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example file is read without an error, and its fields are in the config.
func TestParseFlagsReadsExampleFile(t *testing.T) {
	c, err := parseFlags([]string{"-config", "agent.yaml"})
	require.NoError(t, err)
	require.Equal(t, "unix:///run/containerd/containerd.sock", c.Kubelet.ContainerRuntimeEndpoint)
	require.Equal(t, "/etc/nodeagent/manifests", c.Kubelet.StaticPodPath)
	require.Equal(t, "/var/lib/nodeagent", c.Node.RootDir)
	require.Equal(t, []string{"/etc/nodeagent/config.json"}, c.Node.DockerConfigFiles)
}

// Flags take precedence over the file, in any order of the arguments.
func TestFlagsTakePrecedenceOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /file\ncontainerRuntimeEndpoint: /file.sock\n" +
		"---\napiVersion: nodeagent/v1alpha1\nkind: NodeConfiguration\nnodeName: file\nrootDir: /file/root\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := parseFlags([]string{"-hostname-override", "flag", "-config", file, "-pod-manifest-path", "/flag"})
	require.NoError(t, err)
	require.Equal(t, []string{"flag", "/file.sock", "/flag", "/file/root"},
		[]string{c.Node.NodeName, c.Kubelet.ContainerRuntimeEndpoint, c.Kubelet.StaticPodPath, c.Node.RootDir})
}

func TestParseRefusesArgumentsAndMissingFiles(t *testing.T) {
	_, err := parseFlags([]string{"manifests"})
	require.EqualError(t, err, `unexpected argument "manifests"`)
	_, err = parseFlags([]string{"-config", "missing.yaml"})
	require.EqualError(t, err, "missing.yaml: no such file or directory")
}
