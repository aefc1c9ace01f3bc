// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
	"github.com/seed81659283/nodeagent/volume"
)

// With only a bootstrap kubeconfig, the agent writes its kubeconfig at once, and reports errors of the bootstrap kubeconfig.
func TestClientConfigWritesKubeconfigFromBootstrap(t *testing.T) {
	dir := t.TempDir()
	c := Config{Node: kubeletconfig.NodeConfiguration{
		NodeName: "n1", RootDir: dir, Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"),
	}}
	c.Kubelet.RotateCertificates = true
	a := newAgent(t, c)
	_, err := a.clientConfig(t.Context())
	require.EqualError(t, err, "client certificate: bootstrap kubeconfig "+c.Node.BootstrapKubeconfig+": no such file or directory")
	require.Zero(t, a.parts.Len())
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: abcdef.0123456789abcdef}}]\n"
	require.NoError(t, os.WriteFile(c.Node.BootstrapKubeconfig, []byte(text), 0o600))
	config, err := a.clientConfig(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, a.parts.Len(), "the certificate is renewed by a part of the agent")
	require.Equal(t, "https://127.0.0.1:1", config.Host)
	require.Empty(t, config.BearerToken, "the bootstrap token is used for the first request only")
	written, err := os.ReadFile(c.Node.Kubeconfig)
	require.NoError(t, err)
	require.Contains(t, string(written), "client-certificate: "+a.filePath("pki/kubelet-client-current.pem"))
}

// On a real control plane a bootstrap token is exchanged for a client certificate, which authenticates the node.
func TestClusterIssuesClientCertificateForBootstrapToken(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("needs programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	require.NoError(t, plane.AllowBootstrap(t.Context()))
	bootstrapToken, err := plane.CreateBootstrapToken(t.Context())
	require.NoError(t, err)
	path, err := plane.TokenKubeconfig(bootstrapToken)
	require.NoError(t, err)
	dir := t.TempDir()
	c := Config{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", RootDir: dir, Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: path}}
	c.Kubelet.RotateCertificates = true
	a := newAgent(t, c)
	tokens, err := a.openTokens(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a.parts.Start(ctx, &wg, func(err error) { assert.NoError(t, err) }, a.log)
	require.Eventually(t, func() bool { return kubeconfig.CheckUsable(c.Node.Kubeconfig, time.Now()) == nil }, time.Minute, 50*time.Millisecond)
	_, err = tokens.Token(ctx, volume.TokenRequest{Namespace: "default", ServiceAccount: "default", Pod: "none", PodUID: "u1"})
	require.ErrorContains(t, err, `User "system:node:n1" cannot`, "the API server authenticates the node, and refuses a token for an unknown pod")
}
