// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

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
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

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

func TestCheckCredentialsNamesInvalidField(t *testing.T) {
	nodes := []string{"system:nodes"}
	hour := time.Hour
	for name, test := range map[string]struct {
		user        string
		groups      []string
		from, until time.Time
		want        string
	}{
		"valid":                                  {"system:node:n", nodes, now, now.Add(hour), ""},
		"certificate of an administrator":        {"kubernetes-admin", []string{"system:masters"}, now, now.Add(hour), ""},
		"expired":                                {"system:node:n", nodes, now.Add(-hour), now.Add(-time.Second), "it has expired at 2026-05-31T23:59:59Z"},
		"not valid yet":                          {"system:node:n", nodes, now.Add(time.Minute), now.Add(hour), "it is not valid before 2026-06-01T00:01:00Z: is the clock right?"},
		"certificate of another node":            {"system:node:m", nodes, now, now.Add(hour), `it is that of node "m", and this is node "n"`},
		"certificate without group system:nodes": {"system:node:n", nil, now, now.Add(hour), "its organization must have system:nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			leaf, key := certificate(t, test.user, test.groups, test.from, test.until)
			path := write(t, whole, map[string][]byte{"ca.crt": leaf, "client.crt": leaf, "client.key": key})
			config, err := cert.LoadKubeconfig(path)
			require.NoError(t, err)
			file := filepath.Join(filepath.Dir(path), "client.crt")
			err = cert.CheckCredentials(config, "n", now)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "client-certificate "+file+": "+test.want)

			inline := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: leaf, KeyData: key}}
			assert.EqualError(t, cert.CheckCredentials(inline, "n", now), "client-certificate-data: "+test.want)
		})
	}
	broken := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("secret text")}}
	assert.EqualError(t, cert.CheckCredentials(broken, "n", now), "client-certificate-data: it has no certificate as PEM")
	broken = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("secret text")}}
	assert.EqualError(t, cert.CheckCredentials(broken, "n", now), "certificate-authority-data: it has no certificate as PEM")
	broken = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}
	assert.EqualError(t, cert.CheckCredentials(broken, "n", now), "certificate-authority /none: no such file or directory")
	assert.NoError(t, cert.CheckCredentials(&rest.Config{BearerToken: "t"}, "n", now))
}

func TestExplainErrorNamesField(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/etc/ca.crt", CertFile: "/etc/client.crt"}}
	client := &http.Client{Timeout: 10 * time.Second}
	_, err := client.Get(server.URL) //nolint:bodyclose,noctx // there is no answer
	require.Error(t, err)
	assert.ErrorContains(t, cert.ExplainError(config, err), "certificate-authority /etc/ca.crt: it has not signed the certificate of "+server.URL)

	unauthorized := fmt.Errorf("get nodes n: %w", apierrors.NewUnauthorized("no"))
	assert.ErrorContains(t, cert.ExplainError(config, unauthorized), "client-certificate /etc/client.crt: "+server.URL+" does not accept it")
	for want, c := range map[string]*rest.Config{
		"tokenFile /t: ":                 {BearerTokenFile: "/t"},
		"token: ":                        {BearerToken: "secret"},
		"client-certificate-data: ":      {TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}},
		"user: there are no credentials": {},
	} {
		err := cert.ExplainError(c, unauthorized)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
		assert.True(t, apierrors.IsUnauthorized(err))
	}
	assert.ErrorContains(t, cert.ExplainError(config, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}), "its certificate is for other names")
	assert.ErrorContains(t, cert.ExplainError(config, x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}), "or the clock is wrong")
	other := errors.New("other")
	assert.Equal(t, other, cert.ExplainError(config, other))
	assert.NoError(t, cert.ExplainError(config, nil))
}
