// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/kubeconfig"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

const whole = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt}}]
users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// certificate returns a certificate, and its key, as PEM.
func certificate(t *testing.T, name string, groups []string, from, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: groups}, NotBefore: from, NotAfter: until,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// write writes files into a directory and returns that of the kubeconfig.
func write(t *testing.T, text string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	path := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadRefuses(t *testing.T) {
	cert, key := certificate(t, "system:node:n", []string{"system:nodes"}, now, now.Add(time.Hour))
	files := map[string][]byte{"ca.crt": cert, "client.crt": cert, "client.key": key}
	config, err := kubeconfig.Load(write(t, whole, files))
	require.NoError(t, err)
	assert.Equal(t, "https://10.0.0.1:6443", config.Host)
	assert.True(t, filepath.IsAbs(config.CertFile))

	for want, change := range map[string]func(string) string{
		"current-context: required":                    func(s string) string { return strings.Replace(s, "current-context: x\n", "", 1) },
		`current-context: there is no context "other"`: func(s string) string { return strings.Replace(s, "current-context: x", "current-context: other", 1) },
		`contexts[x].cluster: there is no cluster "d"`: func(s string) string { return strings.Replace(s, "cluster: c,", "cluster: d,", 1) },
		`contexts[x].user: there is no user "v"`:       func(s string) string { return strings.Replace(s, "user: u}", "user: v}", 1) },
		"clusters[c].server: required":                 func(s string) string { return strings.Replace(s, `server: "https://10.0.0.1:6443", `, "", 1) },
		"it is no kubeconfig":                          func(string) string { return "apiVersion: v1\nkind: Pod\n" },
		"it is larger than 1048576 bytes":              func(s string) string { return s + strings.Repeat("#", 1<<20) },
	} {
		path := write(t, change(whole), files)
		_, err := kubeconfig.Load(path)
		require.ErrorContains(t, err, want)
		assert.Contains(t, err.Error(), "kubeconfig "+path+": ")
		assert.NotContains(t, err.Error(), "\n")
	}
	_, err = kubeconfig.Load("")
	require.ErrorContains(t, err, "the path of the file is empty")
	missing := filepath.Join(t.TempDir(), "none")
	_, err = kubeconfig.Load(missing)
	require.EqualError(t, err, "kubeconfig "+missing+": no such file or directory")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = kubeconfig.Load(t.TempDir())
	assert.ErrorContains(t, err, "it is no file")
	_, err = kubeconfig.Load(write(t, whole, map[string][]byte{"ca.crt": cert, "client.key": key}))
	assert.ErrorContains(t, err, "client.crt")
}

func TestCheck(t *testing.T) {
	nodes := []string{"system:nodes"}
	hour := time.Hour
	for name, test := range map[string]struct {
		user        string
		groups      []string
		from, until time.Time
		want        string
	}{
		"valid":               {"system:node:n", nodes, now, now.Add(hour), ""},
		"of an administrator": {"kubernetes-admin", []string{"system:masters"}, now, now.Add(hour), ""},
		"expired":             {"system:node:n", nodes, now.Add(-hour), now.Add(-time.Second), "it has expired at 2026-05-31T23:59:59Z"},
		"not valid yet":       {"system:node:n", nodes, now.Add(time.Minute), now.Add(hour), "it is not valid before 2026-06-01T00:01:00Z: is the clock right?"},
		"of another node":     {"system:node:m", nodes, now, now.Add(hour), `it is that of node "m", and this is node "n"`},
		"without its group":   {"system:node:n", nil, now, now.Add(hour), "its organization must have system:nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			cert, key := certificate(t, test.user, test.groups, test.from, test.until)
			path := write(t, whole, map[string][]byte{"ca.crt": cert, "client.crt": cert, "client.key": key})
			config, err := kubeconfig.Load(path)
			require.NoError(t, err)
			file := filepath.Join(filepath.Dir(path), "client.crt")
			err = kubeconfig.Check(config, "n", now)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "client-certificate "+file+": "+test.want)

			inline := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}
			assert.EqualError(t, kubeconfig.Check(inline, "n", now), "client-certificate-data: "+test.want)
		})
	}
	broken := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("secret text")}}
	assert.EqualError(t, kubeconfig.Check(broken, "n", now), "client-certificate-data: it has no certificate as PEM")
	broken = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("secret text")}}
	assert.EqualError(t, kubeconfig.Check(broken, "n", now), "certificate-authority-data: it has no certificate as PEM")
	broken = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}
	assert.EqualError(t, kubeconfig.Check(broken, "n", now), "certificate-authority /none: no such file or directory")
	assert.NoError(t, kubeconfig.Check(&rest.Config{BearerToken: "t"}, "n", now))
}

func TestExplain(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/etc/ca.crt", CertFile: "/etc/client.crt"}}
	client := &http.Client{Timeout: 10 * time.Second}
	_, err := client.Get(server.URL) //nolint:bodyclose,noctx // there is no answer
	require.Error(t, err)
	assert.ErrorContains(t, kubeconfig.Explain(config, err), "certificate-authority /etc/ca.crt: it has not signed the certificate of "+server.URL)

	unauthorized := fmt.Errorf("get nodes n: %w", apierrors.NewUnauthorized("no"))
	assert.ErrorContains(t, kubeconfig.Explain(config, unauthorized), "client-certificate /etc/client.crt: "+server.URL+" does not take it")
	for want, c := range map[string]*rest.Config{
		"tokenFile /t: ":                 {BearerTokenFile: "/t"},
		"token: ":                        {BearerToken: "secret"},
		"client-certificate-data: ":      {TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}},
		"user: there are no credentials": {},
	} {
		err := kubeconfig.Explain(c, unauthorized)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
		assert.True(t, apierrors.IsUnauthorized(err))
	}
	assert.ErrorContains(t, kubeconfig.Explain(config, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}), "its certificate is for other names")
	assert.ErrorContains(t, kubeconfig.Explain(config, x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}), "or the clock is wrong")
	other := errors.New("other")
	assert.Equal(t, other, kubeconfig.Explain(config, other))
	assert.NoError(t, kubeconfig.Explain(config, nil))
}

// What is no kubeconfig is refused in time, and without its text.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "k")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		config, err := kubeconfig.Load(path)
		if err == nil {
			require.NotEmpty(t, config.Host)
			return
		}
		require.Contains(t, err.Error(), path)
		require.Less(t, len(err.Error()), 1000)
	})
}
