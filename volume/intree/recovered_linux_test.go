// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// unavailableServer is an API server that returns errors, or hangs until ctx ends.
type unavailableServer struct{ hang bool }

var errUnavailable = errors.New("no route")

func (unavailableServer) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, errUnavailable
}

func (unavailableServer) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errUnavailable
}

func (a unavailableServer) Token(ctx context.Context, _ volume.TokenRequest) (volume.Token, error) {
	if !a.hang {
		return volume.Token{}, errUnavailable
	}
	<-ctx.Done()
	return volume.Token{}, ctx.Err()
}

func (unavailableServer) Certificate(context.Context, *corev1.Pod, string, int) (volume.PodCertificate, error) {
	return volume.PodCertificate{}, errUnavailable
}

// setIssuers makes the node issue tokens and certificates that are valid for the duration valid.
func (n *node) setIssuers(valid time.Duration) {
	n.t.Helper()
	expires := time.Now().Add(valid)
	n.options.Tokens = volume.TokenIssuerFunc(func(context.Context, volume.TokenRequest) (volume.Token, error) {
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix()))
		return volume.Token{Value: "e30." + claims + ".c2ln", Expires: expires}, nil
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(n.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: expires}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(n.t, err)
	n.options.Certificates = certificates{
		Key: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
	n.plugins = intree.Plugins(n.options)
}

// certificates returns one certificate for all sources.
type certificates volume.PodCertificate

func (c certificates) Certificate(context.Context, *corev1.Pod, string, int) (volume.PodCertificate, error) {
	return volume.PodCertificate(c), nil
}

// setUpRecovered calls SetUp of v as a restarted agent does whose API server is unavailable. If hang is true, requests to the server
// hang.
func (n *node) setUpRecovered(v volume.Volume, hang bool) (volume.Mount, error) {
	v.Recovered = true
	began, a := time.Now(), unavailableServer{hang}
	m, err := intree.Plugins(intree.Options{Objects: a, Tokens: a, Certificates: a})[v.Plugin].SetUp(n.t.Context(), v)
	require.Error(n.t, err)
	assert.Less(n.t, time.Since(began), 20*time.Second, "a container waits at most 20 s for SetUp")
	return m, err
}

func (n *node) requireUsable(v volume.Volume, want, hang bool) {
	n.t.Helper()
	m, err := n.setUpRecovered(v, hang)
	_, usable := errors.AsType[*volume.StaleError](err)
	require.Equal(n.t, want, usable, "%v", err)
	if usable {
		require.Equal(n.t, volume.Mount{HostPath: v.Dir, ReadOnly: true, SELinuxRelabel: true}, m)
	}
}

func TestRecoveredFilesUsedUnlessExpired(t *testing.T) {
	mounttest.Need(t)
	bundle := "projected: {sources: [{podCertificate: {signerName: a/b, keyType: ECDSAP256, credentialBundlePath: both}}]}"
	chain := "projected: {sources: [{podCertificate: {signerName: a/b, keyType: ECDSAP256, certificateChainPath: chain}}]}"
	all, tokenFirst := volumeKinds["projected"].spec, "projected: {sources: [{serviceAccountToken: {path: token}}]}"
	for name, c := range map[string]struct {
		plugin, spec string
		valid        time.Duration
		after        func(*testing.T, volume.Volume)
		want, hang   bool
	}{
		"config map":                          {plugin: volume.ConfigMap, spec: volumeKinds["configMap"].spec, want: true},
		"secret":                              {plugin: volume.Secret, spec: volumeKinds["secret"].spec, want: true},
		"projected":                           {plugin: volume.Projected, spec: all, valid: time.Hour, want: true},
		"projected with hanging API server":   {plugin: volume.Projected, spec: tokenFirst, valid: time.Hour, want: true, hang: true},
		"expired token":                       {plugin: volume.Projected, spec: all, valid: -time.Second},
		"certificate bundle with key":         {plugin: volume.Projected, spec: bundle, valid: time.Hour, want: true},
		"expired certificate bundle with key": {plugin: volume.Projected, spec: bundle, valid: -time.Second},
		"certificate chain without key":       {plugin: volume.Projected, spec: chain, valid: time.Hour, want: true},
		"unmounted by a reboot":               {plugin: volume.Secret, spec: volumeKinds["secret"].spec, after: unmountVolume},
		"incomplete write":                    {plugin: volume.ConfigMap, spec: volumeKinds["configMap"].spec, after: removeFile("..data")},
		"missing token":                       {plugin: volume.Projected, spec: all, valid: time.Hour, after: removeFile("token")},
		"token is a link to outside":          {plugin: volume.Projected, spec: all, valid: time.Hour, after: replaceTokenByLink},
		"token is a named pipe":               {plugin: volume.Projected, spec: all, valid: time.Hour, after: replaceTokenByPipe},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.setIssuers(c.valid)
			v := n.newVolume(c.plugin, podtest.Pod(t, "volumes: [{name: v, "+c.spec+"}]"))
			n.setUp(v)
			if c.after != nil {
				c.after(t, v)
			}
			n.requireUsable(v, c.want, c.hang)
			n.tearDown(v)
		})
	}
}

func unmountVolume(t *testing.T, v volume.Volume) {
	t.Helper()
	require.NoError(t, unix.Unmount(v.Dir, 0))
}

func removeFile(name string) func(*testing.T, volume.Volume) {
	return func(t *testing.T, v volume.Volume) {
		t.Helper()
		require.NoError(t, os.Remove(filepath.Join(v.Dir, name)))
	}
}

// replaceTokenByLink replaces the token by a link to a file outside of the volume.
func replaceTokenByLink(t *testing.T, v volume.Volume) {
	t.Helper()
	path, other := filepath.Join(v.Dir, "token"), filepath.Join(t.TempDir(), "token")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, text, 0o600))
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(other, path))
}

func replaceTokenByPipe(t *testing.T, v volume.Volume) {
	t.Helper()
	path := filepath.Join(v.Dir, "token")
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
}
