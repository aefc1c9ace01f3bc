// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certrequest_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/certrequest"
)

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// selfSigned returns a certificate of node n1 as PEM.
func selfSigned(t testing.TB, key crypto.Signer, notBefore, notAfter time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(notAfter.UnixNano()), NotBefore: notBefore, NotAfter: notAfter,
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A request has the subject and the names of its template.
func TestNewRequest(t *testing.T) {
	key := newKey(t)
	template, _ := certrequest.ServingTemplate("n1", []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"},
	})
	r, err := certrequest.NewRequest(template, certificatesv1.KubeletServingSignerName, key)
	require.NoError(t, err)
	assert.Equal(t, "csr-", r.GenerateName)
	assert.Empty(t, r.Name)
	assert.Nil(t, r.Spec.ExpirationSeconds)
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "server auth"}, r.Spec.Usages)
	block, rest := pem.Decode(r.Spec.Request)
	require.Empty(t, rest)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, parsed.CheckSignature())
	assert.Equal(t, "system:node:n1", parsed.Subject.CommonName)
	assert.Equal(t, []string{"system:nodes"}, parsed.Subject.Organization)
	assert.Equal(t, []string{"n1"}, parsed.DNSNames)
	assert.Equal(t, "10.0.0.1", parsed.IPAddresses[0].String())
}

func TestUsages(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "client auth"}, certrequest.Usages(certificatesv1.KubeAPIServerClientKubeletSignerName, newKey(t).Public()))
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"}, certrequest.Usages(certificatesv1.KubeAPIServerClientKubeletSignerName, small.Public()))
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "key encipherment", "server auth"}, certrequest.Usages(certificatesv1.KubeletServingSignerName, small.Public()))
}

// The name of a request depends on key and template only.
func TestRequestName(t *testing.T) {
	a, b := newKey(t), newKey(t)
	names := map[string]bool{}
	for _, key := range []crypto.Signer{a, b} {
		for _, node := range []string{"n1", "n2"} {
			name, err := certrequest.RequestName(certrequest.ClientTemplate(node), key.Public())
			require.NoError(t, err)
			again, err := certrequest.RequestName(certrequest.ClientTemplate(node), key.Public())
			require.NoError(t, err)
			assert.Equal(t, name, again)
			assert.Regexp(t, `^node-csr-[A-Za-z0-9_-]{43}$`, name)
			names[name] = true
		}
	}
	assert.Len(t, names, 4)
	_, err := certrequest.RequestName(certrequest.ClientTemplate("n1"), "no key")
	require.ErrorContains(t, err, "encode public key: ")
}

// A request of an earlier attempt is reused only if it has the same key, names and signer.
func TestCheckReusableRefusesOtherRequests(t *testing.T) {
	key := newKey(t)
	client := certificatesv1.KubeAPIServerClientKubeletSignerName
	wanted, err := certrequest.NewRequest(certrequest.ClientTemplate("n1"), client, key)
	require.NoError(t, err)
	there := func(node, signer string, key crypto.Signer) *certificatesv1.CertificateSigningRequest {
		r, err := certrequest.NewRequest(certrequest.ClientTemplate(node), signer, key)
		require.NoError(t, err)
		r.Name = "node-csr-1"
		return r
	}
	issued := there("n1", client, key)
	issued.Status.Certificate = selfSigned(t, key, start(), start().Add(1))
	broken := there("n1", client, key)
	broken.Spec.Request = []byte("no PEM")
	for want, r := range map[string]*certificatesv1.CertificateSigningRequest{
		"": there("n1", client, key),
		`request node-csr-1: its subject is "CN=system:node:n2,O=system:nodes", not "CN=system:node:n1,O=system:nodes"`:        there("n2", client, key),
		`request node-csr-1: its signer is "kubernetes.io/kubelet-serving", not "kubernetes.io/kube-apiserver-client-kubelet"`: there("n1", certificatesv1.KubeletServingSignerName, key),
		"request node-csr-1: it was made with another key: x509: ECDSA verification failure":                                   there("n1", client, newKey(t)),
		"request node-csr-1: its certificate has expired at 2026-01-02T03:04:05Z":                                              issued,
		"request node-csr-1: it has no block CERTIFICATE REQUEST of PEM":                                                       broken,
	} {
		err := certrequest.CheckReusable(r, wanted, key.Public(), start().Add(2))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}
