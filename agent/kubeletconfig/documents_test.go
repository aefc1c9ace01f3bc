// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

const nodeHeader = "apiVersion: nodeagent/v1alpha1\nkind: NodeConfiguration\n"

func TestParseDocumentsReadsBothDocuments(t *testing.T) {
	c, err := kubeletconfig.ParseDocuments([]byte("# of the team\n---\n" + nodeHeader + "nodeName: n1\nnodeIPs: [10.0.0.1]\n---\n" + header + "maxPods: 5\n"))
	require.NoError(t, err)
	assert.Equal(t, "n1", c.Node.NodeName)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1")}, c.Node.NodeIPs)
	assert.EqualValues(t, 5, c.Kubelet.MaxPods)

	c, err = kubeletconfig.ParseDocuments(nil)
	require.NoError(t, err)
	assert.Equal(t, kubeletconfig.Documents{}, c)
}

// Load names the file, and the invalid field or kind.
func TestLoadNamesFileAndField(t *testing.T) {
	for text, want := range map[string]string{
		"maxPods: 5":                            "kind: missing, want KubeletConfiguration or NodeConfiguration",
		"apiVersion: v1\nkind: Pod":             `apiVersion and kind: "v1" and "Pod" are not supported`,
		nodeHeader + "---\n" + nodeHeader:       "kind: there are two documents of kind NodeConfiguration",
		nodeHeader + "nodeIPs: [nope]":          `nodeIPs[0]: "nope": ParseAddr("nope"): unable to parse IP`,
		nodeHeader + "logLevel: loud":           `logLevel: "loud": slog: level string "loud": unknown name`,
		nodeHeader + "stateDir: /x":             "stateDir: unknown field",
		header + "memoryReservationPolicy: All": `memoryReservationPolicy: "All" is not supported by this version, want "None"`,
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := kubeletconfig.Load(path)
		require.EqualError(t, err, path+": "+want, text)
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		_, err = kubeletconfig.Load("/dev/zero")
		require.EqualError(t, err, "/dev/zero: is no regular file")
	}
}

// The defaults of both documents depend on each other: a node without a cluster and a runtime has the addresses of plain processes.
func TestDocumentsDefaults(t *testing.T) {
	var d kubeletconfig.Documents
	d.Node.RootDir = "relative"
	require.NoError(t, d.SetDefaults())
	require.NoError(t, d.Validate())
	require.NotEmpty(t, d.Node.NodeName)
	require.True(t, filepath.IsAbs(d.Node.RootDir))
	require.Equal(t, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, d.Node.NodeIPs)
	require.Equal(t, filepath.Join(d.Node.RootDir, "logs"), d.Kubelet.PodLogsDir, "a user without root cannot write to /var/log/pods")
	require.Empty(t, d.Node.ContainerLogsDir)
	require.False(t, d.InCluster())
	require.Zero(t, d.NodeStatus().Port)

	d = kubeletconfig.Documents{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", Kubeconfig: "/k"}}
	d.Kubelet.ContainerRuntimeEndpoint, d.Kubelet.PodLogsDir = "unix:///c", "/logs"
	require.NoError(t, d.SetDefaults())
	require.NoError(t, d.Validate())
	require.Empty(t, d.Node.NodeIPs)
	require.Empty(t, d.Node.ContainerLogsDir)
	require.True(t, d.InCluster())
	require.EqualValues(t, 10250, d.NodeStatus().Port)
	require.Contains(t, d.NodeStatus().DeclaredFeatures, "ExtendWebSocketsToKubelet")
	require.Equal(t, "n1", d.AuthOptions().NodeName)
	require.False(t, d.AuthOptions().AlwaysAllow)

	d = kubeletconfig.Documents{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", Kubeconfig: "/k"}}
	d.Kubelet.RegisterNode = new(false)
	require.NoError(t, d.SetDefaults())
	require.NoError(t, d.Validate())
	require.True(t, d.InCluster(), "another client creates the Node object")
	d.Node.Reregister = true
	require.ErrorContains(t, d.Validate(), "reregister needs registerNode")

	d = kubeletconfig.Documents{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", Kubeconfig: "/k", TokensOnly: true}}
	require.NoError(t, d.SetDefaults())
	require.NoError(t, d.Validate())
	require.False(t, d.InCluster() || *d.Kubelet.RegisterNode || *d.Kubelet.EnableServer)
	d.Kubelet.RegisterNode = new(true)
	require.ErrorContains(t, d.Validate(), "registerNode and tokensOnly are both true")

	d = kubeletconfig.Documents{Kubelet: kubeletconfig.Configuration{ContainerRuntimeEndpoint: "unix:///c"}}
	require.NoError(t, d.SetDefaults())
	require.Equal(t, []string{"/var/log/pods", "/var/log/containers"}, []string{d.Kubelet.PodLogsDir, d.Node.ContainerLogsDir})
}

// FuzzParseDocuments checks that no file causes a panic.
func FuzzParseDocuments(f *testing.F) {
	f.Add([]byte(nodeHeader + "nodeName: n\n---\n" + header))
	f.Add([]byte("---\n---\n{}\n--- 1\n"))
	f.Add([]byte("kind: &a [*a]"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = kubeletconfig.ParseDocuments(data) })
}
