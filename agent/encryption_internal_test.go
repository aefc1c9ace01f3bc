// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/internal/certtest"
)

// The HTTP server of the agent has a certificate for the current addresses of the node.
func TestServingCertificateFollowsNodeAddresses(t *testing.T) {
	cluster, err := certtest.Start(certtest.Options{})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	certPEM, keyPEM, err := cluster.CA().ClientCertificate("system:node:n1", time.Now(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	var mu sync.Mutex
	ips := []string{"10.0.0.1"}
	a := newAgent(t, Config{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", RootDir: t.TempDir()}})
	serverConfig := func() *tls.Config {
		c, err := a.tlsConfig()
		require.NoError(t, err)
		return c
	}
	a.config.Kubelet.ServerTLSBootstrap = true
	require.NoError(t, a.requestServingCertificate(&rest.Config{
		Host: certtest.Host, Dial: cluster.Dial,
		TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CA().PEM(), CertData: certPEM, KeyData: keyPEM},
	}, func() (all []corev1.NodeAddress) {
		mu.Lock()
		defer mu.Unlock()
		for _, ip := range ips {
			all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		return all
	}))
	require.ErrorContains(t, connect(serverConfig(), cluster.CA().PEM(), "10.0.0.1"), "there is no certificate")

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a.parts.Start(ctx, &wg, func(err error) { assert.NoError(t, err) }, a.log)
	connects := func(host string) func() bool {
		return func() bool { return connect(serverConfig(), cluster.CA().PEM(), host) == nil }
	}
	require.Eventually(t, connects("10.0.0.1"), time.Minute, 10*time.Millisecond)
	require.Error(t, connect(serverConfig(), cluster.CA().PEM(), "10.0.0.2"))
	mu.Lock()
	ips = []string{"10.0.0.2"}
	mu.Unlock()
	require.Eventually(t, connects("10.0.0.2"), time.Minute, 10*time.Millisecond)
}

// connect connects to a server with a TLS configuration, as a client that trusts a CA and expects a host name. It returns
// the error of the server if both fail, or else that of the client.
func connect(config *tls.Config, ca []byte, host string) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			err = tls.Server(conn, config).Handshake()
		}
		served <- err
	}()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{RootCAs: pool, ServerName: host}}
	conn, err := dialer.Dial("tcp", listener.Addr().String())
	if err == nil {
		_ = conn.Close()
	}
	if failed := <-served; failed != nil && err != nil {
		return failed
	}
	return err
}
