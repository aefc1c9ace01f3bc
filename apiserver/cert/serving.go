// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// ServingOptions configures a [Serving]. NodeName and Addresses are required.
type ServingOptions struct {
	NodeName string // required
	// Addresses returns the present addresses of the node. Run calls it once a second. Required.
	Addresses func() []corev1.NodeAddress
	Dir       string // of certificates; empty: /var/lib/kubelet/pki
	// CertFile and KeyFile are the certificate and key to use until a certificate is issued. Empty: none.
	CertFile, KeyFile string
	Rand              func() float64 // jitter in [0,1); nil: math/rand/v2
	Logger            *slog.Logger   // nil discards
	Hooks             Hooks
}

// Serving maintains the serving certificate of a node: it requests, stores and rotates the certificate. Create one with
// [NewServing].
type Serving struct{ rotation rotation }

// NewServing loads the stored serving certificate, if there is one. It sends no request; [Serving.Run] requests the
// certificate. config contains the credentials of the node, for example from [Client.Config].
func NewServing(config *rest.Config, opts ServingOptions) (*Serving, error) {
	switch {
	case opts.NodeName == "":
		return nil, errors.New("serving certificate: ServingOptions.NodeName must not be empty: it is the node in the certificate")
	case opts.Addresses == nil:
		return nil, errors.New("serving certificate: ServingOptions.Addresses must not be nil: it returns the addresses in the certificate")
	}
	client, err := kubeapi.New(config, kubeapi.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s := &Serving{}
	s.rotation.base.setDefaults("serving", opts.Logger, opts.Hooks, opts.Rand)
	s.rotation.signer = certificatesv1.KubeletServingSignerName
	s.rotation.pollInterval = certrequest.PollInterval
	if s.rotation.base.store, err = certstore.Open(certstore.Options{Dir: opts.Dir, Prefix: certstore.ServingPrefix, CertFile: opts.CertFile, KeyFile: opts.KeyFile}); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s.rotation.template = func() (certrequest.Template, bool) {
		return certrequest.ServingTemplate(opts.NodeName, opts.Addresses())
	}
	s.rotation.requestClient = func() (*kubeapi.Client, func(), error) { return client, func() {}, nil }
	s.rotation.findCertificate = s.findCertificate
	s.rotation.loadExisting()
	s.rotation.guard.Require("cert.Serving", s.rotation.base.log, s.rotation.base.hooks.Failed)
	return s, nil
}

// findCertificate returns the certificate of the store, or nil if it has expired.
func (s *Serving) findCertificate() (pair *tls.Certificate, replace bool, err error) {
	pair, err = s.rotation.base.store.Current()
	if err != nil || !s.rotation.base.now().Before(pair.Leaf.NotAfter) {
		return nil, false, err
	}
	return pair, false, nil // a serving certificate need not be replaced at once
}

// Run requests the certificate, and replaces it before it expires or when the node's addresses change, until ctx ends. It
// retries after each failure. An approver in the cluster must approve each request. A second call returns an error.
func (s *Serving) Run(ctx context.Context) error { return s.rotation.runLoop(ctx) }

// GetCertificate returns the current certificate, for the field GetCertificate of a [tls.Config]. It returns an error if
// there is no valid certificate.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := s.rotation.currentPair(); pair != nil {
		return pair, nil
	}
	return nil, fmt.Errorf("serve this node: %w that is valid: %s", certstore.ErrNoCertificate, s.rotation.status().Reason)
}

// Leaf returns the parsed current certificate, or nil if there is no valid certificate.
func (s *Serving) Leaf() *x509.Certificate {
	if pair := s.rotation.currentPair(); pair != nil {
		return pair.Leaf
	}
	return nil
}

// Status returns the state of the certificate and its requests.
func (s *Serving) Status() Status { return s.rotation.status() }
