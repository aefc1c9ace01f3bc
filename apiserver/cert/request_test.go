// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/cert"
)

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// What a request has in it.
func TestNewRequest(t *testing.T) {
	key := newKey(t)
	template, _ := cert.ServingTemplate("n1", []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"},
	})
	r, err := cert.NewRequest(template, certificatesv1.KubeletServingSignerName, key)
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
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "client auth"}, cert.Usages(certificatesv1.KubeAPIServerClientKubeletSignerName, newKey(t).Public()))
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"}, cert.Usages(certificatesv1.KubeAPIServerClientKubeletSignerName, small.Public()))
	assert.Equal(t, []certificatesv1.KeyUsage{"digital signature", "key encipherment", "server auth"}, cert.Usages(certificatesv1.KubeletServingSignerName, small.Public()))
}

// The name of a request follows from key and template, and from nothing else.
func TestRequestName(t *testing.T) {
	a, b := newKey(t), newKey(t)
	names := map[string]bool{}
	for _, key := range []crypto.Signer{a, b} {
		for _, node := range []string{"n1", "n2"} {
			name, err := cert.RequestName(cert.ClientTemplate(node), key.Public())
			require.NoError(t, err)
			again, err := cert.RequestName(cert.ClientTemplate(node), key.Public())
			require.NoError(t, err)
			assert.Equal(t, name, again)
			assert.Regexp(t, `^node-csr-[A-Za-z0-9_-]{43}$`, name)
			names[name] = true
		}
	}
	assert.Len(t, names, 4)
	_, err := cert.RequestName(cert.ClientTemplate("n1"), "no key")
	require.ErrorContains(t, err, "encode public key: ")
}

// What becomes of a request.
func TestOutcome(t *testing.T) {
	request := func(certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := &certificatesv1.CertificateSigningRequest{}
		r.UID, r.Status.Certificate = "uid", []byte(certificate)
		for _, c := range conditions {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Reason: "Because", Message: "of\nthis"})
		}
		return r
	}
	other := request("x", certificatesv1.CertificateApproved)
	other.UID = "other"
	for name, test := range map[string]struct {
		request *certificatesv1.CertificateSigningRequest
		want    string
		err     string
	}{
		"new":            {request: request("")},
		"approved":       {request: request("", certificatesv1.CertificateApproved)},
		"signed":         {request: request("x", certificatesv1.CertificateApproved), want: "x"},
		"never approved": {request: request("x")},
		"denied":         {request: request("", certificatesv1.CertificateDenied), err: `certificate signing request csr-1 was denied: "Because": "of\nthis"`},
		"failed": {
			request: request("x", certificatesv1.CertificateApproved, certificatesv1.CertificateFailed),
			err:     `certificate signing request csr-1 has failed: "Because": "of\nthis"`,
		},
		"deleted":  {err: "certificate signing request csr-1 was deleted"},
		"replaced": {request: other, err: `certificate signing request csr-1 was replaced by another one: its UID is "other", not "uid"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cert.Outcome(test.request, "csr-1", "uid")
			assert.Equal(t, test.want, string(got))
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
}

// A request of an earlier attempt is used again only if it is ours.
func TestReusable(t *testing.T) {
	key := newKey(t)
	client := certificatesv1.KubeAPIServerClientKubeletSignerName
	wanted, err := cert.NewRequest(cert.ClientTemplate("n1"), client, key)
	require.NoError(t, err)
	there := func(node, signer string, key crypto.Signer) *certificatesv1.CertificateSigningRequest {
		r, err := cert.NewRequest(cert.ClientTemplate(node), signer, key)
		require.NoError(t, err)
		r.Name = "node-csr-1"
		return r
	}
	issued := there("n1", client, key)
	issued.Status.Certificate, _ = selfSigned(t, key, start(), start().Add(1))
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
		err := cert.Reusable(r, wanted, key.Public(), start().Add(2))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}
