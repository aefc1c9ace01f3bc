// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"crypto/tls"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/apiserver/cert"
)

// A node without a certificate creates one, keeps it over restarts, and replaces it when it has a new address or the files do not
// match.
func TestSelfSigned(t *testing.T) {
	dir := t.TempDir() + "/pki"
	first, second := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")
	read := func(ips ...netip.Addr) *tls.Certificate {
		t.Helper()
		certFile, keyFile, err := cert.SelfSigned(dir, "node-1", ips)
		require.NoError(t, err)
		require.Equal(t, []string{dir + "/kubelet.crt", dir + "/kubelet.key"}, []string{certFile, keyFile})
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		require.NoError(t, err)
		for _, name := range append(ips, first) {
			require.NoError(t, pair.Leaf.VerifyHostname(name.String()))
		}
		require.NoError(t, pair.Leaf.VerifyHostname("node-1"))
		info, err := os.Stat(keyFile)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		return &pair
	}
	made := read(first)
	require.Equal(t, made.Leaf.Raw, read(first).Leaf.Raw, "a valid certificate is kept")
	both := read(first, second)
	require.NotEqual(t, made.Leaf.Raw, both.Leaf.Raw)
	require.Equal(t, both.Leaf.Raw, read(first).Leaf.Raw, "a certificate with an additional address is kept")

	require.NoError(t, os.WriteFile(dir+"/kubelet.key", []byte("not a key"), 0o600))
	require.NotEqual(t, both.Leaf.Raw, read(first).Leaf.Raw)
}
