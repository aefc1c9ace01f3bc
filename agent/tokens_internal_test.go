// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/volume"
)

// clientPEM returns a certificate and its key in one file, as a kubelet keeps them.
func clientPEM(t *testing.T) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:n1"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...)
}

// tokenServer starts a TLS server with a handler, and returns a kubeconfig for it.
func tokenServer(t *testing.T, answer http.HandlerFunc) string {
	server := httptest.NewUnstartedServer(answer)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	both, ca := filepath.Join(dir, "client.pem"), filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(both, clientPEM(t), 0o600))
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return writeKubeconfig(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server.URL, ca, both, both))
}

func openTokens(t *testing.T, kubeconfig, node string) (apiserver.Tokens, error) {
	c := Config{Node: kubeletconfig.NodeConfiguration{Kubeconfig: kubeconfig, NodeName: node}}
	c.Kubelet.SetDefaults(kubeletconfig.Defaults{})
	return (&Agent{log: slog.New(slog.DiscardHandler), config: c}).openTokens(t.Context())
}

func writeKubeconfig(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// serveTokens starts an API server that issues tokens, and returns it with its kubeconfig. It stores the common name of the
// client certificate of each request in user.
func serveTokens(t *testing.T, user *string) (*apiservertest.Server, string) {
	server := apiservertest.NewServer(apiservertest.Options{})
	require.NoError(t, server.Put(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-n1", UID: "u1"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"}},
	))
	return server, tokenServer(t, func(w http.ResponseWriter, r *http.Request) {
		*user = r.TLS.PeerCertificates[0].Subject.CommonName
		server.ServeHTTP(w, r)
	})
}

func TestPodsGetServiceAccountTokens(t *testing.T) {
	var user string
	server, kubeconfig := serveTokens(t, &user)
	tokens, err := openTokens(t, kubeconfig, "n1")
	require.NoError(t, err)
	got, err := tokens.Token(t.Context(), volume.TokenRequest{
		Namespace: "shop", ServiceAccount: "app", Audience: "vault", ExpirationSeconds: 600, Pod: "web-n1", PodUID: "u1",
	})
	require.NoError(t, err)
	require.NotEmpty(t, got.Value)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), got.Expires, time.Minute)
	require.Equal(t, "system:node:n1", user)
	require.Equal(t, 1, server.CountRequests(apiservertest.Match{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "app"}))
}

// A token request that the API server refuses returns an error with its text.
func TestRefusedTokenRequestHasErrorOfAPIServer(t *testing.T) {
	var user string
	server, kubeconfig := serveTokens(t, &user)
	server.Inject(apiservertest.Fault{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "app", errors.New("no relationship found between node and pod"))})
	tokens, err := openTokens(t, kubeconfig, "n1")
	require.NoError(t, err)
	_, err = tokens.Token(t.Context(), volume.TokenRequest{Namespace: "shop", ServiceAccount: "app", Pod: "web-n1", PodUID: "u1"})
	require.ErrorContains(t, err, "create serviceaccounts/token shop/app: ")
	require.ErrorContains(t, err, "no relationship found between node and pod")
}

func TestNewNamesErrorOfKubeconfig(t *testing.T) {
	for text, want := range map[string]string{
		"clusters: []": "current-context: required",
		"clusters: 1":  "cannot unmarshal number",
		"{apiVersion: v1, clusters: [{name: c, cluster: {server: x, certificate-authority: /does/not/exist}}], users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}":           "/does/not/exist: no such file",
		"{apiVersion: v1, clusters: [{name: c, cluster: {server: x, certificate-authority-data: \"%\"}}], users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}":                "illegal base64",
		"{apiVersion: v1, clusters: [{name: c, cluster: {server: \"https://x\", certificate-authority-data: aGVsbG8=}}], users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}": "unable to load root certificates",
	} {
		path := writeKubeconfig(t, text)
		_, err := openTokens(t, path, "n1")
		require.ErrorContains(t, err, "kubeconfig "+path+": ")
		require.ErrorContains(t, err, want)
	}
	_, err := openTokens(t, "/does/not/exist", "n1")
	require.ErrorContains(t, err, "kubeconfig /does/not/exist: ")
}
