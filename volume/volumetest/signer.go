// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/volume"
)

// Signer is a [volume.CertificateIssuer] with a certificate authority in memory. It issues certificates for client and server
// authentication to any pod. The zero value is ready for use; its certificates are valid for a day. It may be used from several
// goroutines.
type Signer struct {
	// Lifetime is the validity of a certificate; renewal may begin after four fifths of it. Zero means 24 h.
	Lifetime time.Duration
	// Fault is called before a certificate is issued. Its error is returned. May be nil.
	Fault func(ctx context.Context, r volume.CertificateRequest) error

	mu       sync.Mutex // guards the fields below
	key      ed25519.PrivateKey
	root     *x509.Certificate
	requests []volume.CertificateRequest
}

var _ volume.CertificateIssuer = (*Signer)(nil)

// Issue returns a certificate for the key of a request.
func (s *Signer) Issue(ctx context.Context, r volume.CertificateRequest) (volume.IssuedCertificate, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	serial := int64(len(s.requests) + 1)
	err := s.ensureAuthority()
	s.mu.Unlock()
	if err == nil && s.Fault != nil {
		err = s.Fault(ctx, r)
	}
	if err != nil {
		return volume.IssuedCertificate{}, err
	}
	stub, err := x509.ParseCertificateRequest(r.StubPKCS10Request)
	if err == nil {
		err = stub.CheckSignature()
	}
	if err != nil {
		return volume.IssuedCertificate{}, fmt.Errorf("request of pod %s/%s: %w", r.Namespace, r.Pod, err)
	}
	life := s.Lifetime
	if life <= 0 {
		life = 24 * time.Hour
	}
	now := time.Now()
	leaf := newTemplate(serial, r.Namespace+"/"+r.Pod, now, now.Add(life))
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, stub.PublicKey, s.key)
	if err != nil {
		return volume.IssuedCertificate{}, err
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return volume.IssuedCertificate{Chain: chain, BeginRefreshAt: now.Add(life * 4 / 5), NotAfter: leaf.NotAfter}, nil
}

// Requests returns all requests so far, in order.
func (s *Signer) Requests() []volume.CertificateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// TrustBundle returns a trust bundle with this name and this signer. It contains the root certificate of s, with which all
// certificates of s can be verified.
func (s *Signer) TrustBundle(name, signer string) (volume.TrustBundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ensureAuthority(); err != nil {
		return volume.TrustBundle{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.root.Raw})
	return volume.TrustBundle{Name: name, Signer: signer, PEM: string(text)}, nil
}

// ensureAuthority generates the key and the root certificate of s. If s has them already, it does nothing. The caller holds
// s.mu.
func (s *Signer) ensureAuthority() error {
	if s.root != nil {
		return nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	root := newTemplate(1, "volumetest", time.Now().Add(-time.Hour), time.Now().AddDate(100, 0, 0))
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, public, private)
	if err != nil {
		return err
	}
	s.key = private
	s.root, err = x509.ParseCertificate(der)
	return err
}

func newTemplate(serial int64, name string, from, to time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// TrustBundles is a [volume.TrustBundleLister] that stores cluster trust bundles in memory. The zero value is empty. It may be
// used from several goroutines.
type TrustBundles struct {
	// Fault is called before the bundles are listed. Its error is returned. May be nil.
	Fault func() error

	mu       sync.Mutex // guards the fields below
	bundles  map[string]volume.TrustBundle
	watchers map[int]func(kind, namespace, name string)
	watched  int
}

var _ volume.TrustBundleLister = (*TrustBundles)(nil)

// TrustBundles returns all bundles, sorted by name.
func (b *TrustBundles) TrustBundles(context.Context) ([]volume.TrustBundle, error) {
	if b.Fault != nil {
		if err := b.Fault(); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []volume.TrustBundle
	for _, name := range slices.Sorted(maps.Keys(b.bundles)) {
		all = append(all, b.bundles[name])
	}
	return all, nil
}

// Put stores or replaces a bundle, and informs the watchers.
func (b *TrustBundles) Put(bundle volume.TrustBundle) {
	b.changeBundles(bundle.Name, func() { b.bundles[bundle.Name] = bundle })
}

// Delete removes a bundle, and informs the watchers.
func (b *TrustBundles) Delete(name string) { b.changeBundles(name, func() { delete(b.bundles, name) }) }

func (b *TrustBundles) changeBundles(name string, do func()) {
	b.mu.Lock()
	if b.bundles == nil {
		b.bundles = map[string]volume.TrustBundle{}
	}
	do()
	watchers := slices.Collect(maps.Values(b.watchers))
	b.mu.Unlock()
	for _, changed := range watchers {
		changed(volume.KindTrustBundle, "", name)
	}
}

// Watch calls changed for each bundle that is stored or deleted, until ctx ends. It implements [volume.Watcher].
func (b *TrustBundles) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	b.mu.Lock()
	if b.watchers == nil {
		b.watchers = map[int]func(string, string, string){}
	}
	b.watched++
	id := b.watched
	b.watchers[id] = changed
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, id)
	return ctx.Err()
}
