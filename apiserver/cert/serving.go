// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
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

// ServingOptions configure a [Serving].
type ServingOptions struct {
	NodeName string // it must not be empty
	// Addresses returns those of the node as they are now. It is called once a second, and must not be nil.
	Addresses func() []corev1.NodeAddress
	Dir       string // of certificates; empty: /var/lib/kubelet/pki
	// CertFile and KeyFile are served as long as nothing was issued. Empty: there are none.
	CertFile, KeyFile string
	Rand              func() float64 // nil means that of math/rand/v2
	Logger            *slog.Logger   // nil discards
	Hooks             Hooks
}

// Serving has the certificate that a node serves its API with. Make one with [NewServing].
type Serving struct{ rotation rotation }

// NewServing returns a Serving that has the certificate that is there, if any. It asks nobody for one: that is [Serving.Run]. The
// config is that of the node, such as [Client.Config].
func NewServing(config *rest.Config, o ServingOptions) (*Serving, error) {
	switch {
	case o.NodeName == "":
		return nil, errors.New("serving certificate: ServingOptions.NodeName must not be empty: it is who the certificate is for")
	case o.Addresses == nil:
		return nil, errors.New("serving certificate: ServingOptions.Addresses must not be nil: it returns what the certificate is for")
	}
	client, err := kubeapi.New(config, kubeapi.Options{Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s := &Serving{}
	s.rotation.base.setDefaults("serving", o.Logger, o.Hooks, o.Rand)
	s.rotation.signer = certificatesv1.KubeletServingSignerName
	s.rotation.pollInterval = certrequest.PollInterval
	if s.rotation.base.store, err = certstore.Open(certstore.Options{Dir: o.Dir, Prefix: certstore.ServingPrefix, CertFile: o.CertFile, KeyFile: o.KeyFile}); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s.rotation.template = func() (certrequest.Template, bool) { return certrequest.ServingTemplate(o.NodeName, o.Addresses()) }
	s.rotation.requestClient = func() (*kubeapi.Client, func(), error) { return client, func() {}, nil }
	s.rotation.findCertificate = s.findCertificate
	s.rotation.loadExisting()
	s.rotation.guard.Require("cert.Serving", s.rotation.base.log, s.rotation.base.hooks.Failed)
	return s, nil
}

func (s *Serving) findCertificate() (*tls.Certificate, bool, error) {
	pair, err := s.rotation.base.store.Current()
	if err != nil || !s.rotation.base.now().Before(pair.Leaf.NotAfter) {
		return nil, false, err
	}
	return pair, false, nil
}

// Run requests the certificate, and replaces it in time and when an address is new, until ctx ends. It is called once. Whatever
// fails is tried again, and never ends it. Nobody in a cluster approves such requests by itself: see the package comment.
func (s *Serving) Run(ctx context.Context) error { return s.rotation.runLoop(ctx) }

// GetCertificate is for a [tls.Config]. It returns an error when there is no valid one.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := s.rotation.currentPair(); pair != nil {
		return pair, nil
	}
	return nil, fmt.Errorf("serve this node: %w that is valid: %s", certstore.ErrNoCertificate, s.rotation.status().Reason)
}

// Current returns the certificate, or nil if there is none that is valid.
func (s *Serving) Current() *tls.Certificate { return s.rotation.currentPair() }

// Status returns what is known about the certificate.
func (s *Serving) Status() Status { return s.rotation.status() }
