// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/certtest"
)

// addresses holds the node addresses, which a test changes.
type addresses struct {
	mu  sync.Mutex
	all []corev1.NodeAddress
}

func (a *addresses) get() []corev1.NodeAddress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

func (a *addresses) set(ips ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}}
	for _, ip := range ips {
		a.all = append(a.all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
}

// newServing returns a Serving of node n1 with a client certificate that is valid for a year.
func (s *scene) newServing(a *addresses) *cert.Serving {
	s.Helper()
	certPEM, keyPEM, err := s.CA().ClientCertificate("system:node:n1", time.Now(), time.Now().AddDate(1, 0, 0))
	require.NoError(s, err)
	config := &rest.Config{
		Host: certtest.Host, Dial: s.Dial,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.CA().PEM(), CertData: certPEM, KeyData: keyPEM},
	}
	serving, err := cert.NewServing(config, cert.ServingOptions{
		NodeName: "n1", Addresses: a.get, Dir: s.path("pki"), Rand: func() float64 { return 0.5 }, Hooks: s.hooks(),
	})
	require.NoError(s, err)
	return serving
}

// The certificate follows the addresses of the node.
func TestServingRequestsCertificateForAddresses(t *testing.T) {
	runWithCluster(t, certtest.Options{}, func(s *scene) {
		a := &addresses{}
		a.set()
		serving := s.newServing(a)
		defer s.startRunner(serving)()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, s.requests(), "no request while the node has only a host name")
		_, err := serving.GetCertificate(nil)
		require.ErrorIs(t, err, certstore.ErrNoCertificate)
		require.EqualError(t, err, "serve this node: there is no certificate that is valid: the names for the certificate are not known yet")

		a.set("10.0.0.1")
		time.Sleep(1100 * time.Millisecond)
		pair, err := serving.GetCertificate(nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"n1"}, pair.Leaf.DNSNames)
		assert.Equal(t, "10.0.0.1", pair.Leaf.IPAddresses[0].String())
		request := s.requests()[0]
		assert.Equal(t, certificatesv1.KubeletServingSignerName, request.Spec.SignerName)

		a.set("10.0.0.1", "10.0.0.2")
		time.Sleep(1100 * time.Millisecond)
		require.Len(t, s.requests(), 2, "a new address is requested at once")
		assert.Len(t, serving.Leaf().IPAddresses, 2)

		a.set("10.0.0.2")
		time.Sleep(10 * time.Minute)
		assert.Len(t, s.requests(), 2, "a certificate with an additional address is kept")
		assert.Equal(t, 2, s.countRequests())
		assert.Contains(t, listDir(t, s.path("pki"))[0], "kubelet-server-")
		assert.Empty(t, s.reportedErrors())
	})
}

// A request for addresses that the node no longer has is canceled. An address that disappears and returns causes no new request
// each time.
func TestServingReplacesCertificateForNewAddress(t *testing.T) {
	runWithCluster(t, certtest.Options{Decide: func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Postpone }}, func(s *scene) {
		a := &addresses{}
		a.set("10.0.0.1")
		serving := s.newServing(a)
		defer s.startRunner(serving)()
		time.Sleep(time.Second)
		require.Len(t, s.requests(), 1)
		a.set("10.0.0.2")
		time.Sleep(1100 * time.Millisecond)
		require.Len(t, s.requests(), 2)
		s.DecidePending()
		s.SetDecide(nil)
		s.DecidePending()
		time.Sleep(time.Second)
		require.Equal(t, "10.0.0.2", serving.Leaf().IPAddresses[0].String())
		assert.Empty(t, s.reportedErrors(), "a canceled request for old addresses is no error")

		s.SetDecide(func(*certificatesv1.CertificateSigningRequest) certtest.Verdict { return certtest.Postpone })
		for i := range 600 {
			a.set([]string{"10.0.0.3", "10.0.0.4"}[i%2])
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, len(s.requests()), 2+5*11)
	})
}

func TestNewServingRefusesInvalidOptions(t *testing.T) {
	a := &addresses{}
	good := &rest.Config{Host: certtest.Host}
	for want, test := range map[string]struct {
		config *rest.Config
		o      cert.ServingOptions
	}{
		"serving certificate: ServingOptions.NodeName must not be empty": {good, cert.ServingOptions{Addresses: a.get}},
		"serving certificate: ServingOptions.Addresses must not be nil":  {good, cert.ServingOptions{NodeName: "n1"}},
		"serving certificate: kubeapi: config is nil":                    {nil, cert.ServingOptions{NodeName: "n1", Addresses: a.get}},
	} {
		_, err := cert.NewServing(test.config, test.o)
		require.ErrorContains(t, err, want)
	}
}
