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

// Signer is a signer of pod certificates with a certificate authority in memory: what it issues is valid, for the key that it was
// asked for, as a client and as a server. The zero value issues certificates at once that are valid for a day. It may be used from
// several goroutines.
type Signer struct {
	// Lifetime is how long a certificate is valid, the last fifth of which is for its renewal. Zero means 24 h.
	Lifetime time.Duration
	// Fault is called before a certificate is issued. With an error none is. Nil: there are no faults.
	Fault func(ctx context.Context, r volume.CertificateRequest) error

	mu       sync.Mutex // guards what follows
	key      ed25519.PrivateKey
	root     *x509.Certificate
	requests []volume.CertificateRequest
}

var _ volume.CertificateIssuer = (*Signer)(nil)

// Issue certifies the key of a request.
func (s *Signer) Issue(ctx context.Context, r volume.CertificateRequest) (volume.IssuedCertificate, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	serial := int64(len(s.requests) + 1)
	err := s.begin()
	s.mu.Unlock()
	if err == nil && s.Fault != nil {
		err = s.Fault(ctx, r)
	}
	if err != nil {
		return volume.IssuedCertificate{}, err
	}
	stub, err := x509.ParseCertificateRequest(r.Stub)
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
	leaf := template(serial, r.Namespace+"/"+r.Pod, now, now.Add(life))
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, stub.PublicKey, s.key)
	if err != nil {
		return volume.IssuedCertificate{}, err
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return volume.IssuedCertificate{Chain: chain, BeginRefreshAt: now.Add(life * 4 / 5), NotAfter: leaf.NotAfter}, nil
}

// Requests returns what the signer was asked for, in order.
func (s *Signer) Requests() []volume.CertificateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Bundle returns the certificate of the authority as a cluster trust bundle.
func (s *Signer) Bundle(name, signer string) (volume.TrustBundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return volume.TrustBundle{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.root.Raw})
	return volume.TrustBundle{Name: name, Signer: signer, PEM: string(text)}, nil
}

// begin makes the authority, once. The lock is held.
func (s *Signer) begin() error {
	if s.root != nil {
		return nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	root := template(1, "volumetest", time.Now().Add(-time.Hour), time.Now().AddDate(100, 0, 0))
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, public, private)
	if err != nil {
		return err
	}
	s.key = private
	s.root, err = x509.ParseCertificate(der)
	return err
}

func template(serial int64, name string, from, to time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// TrustBundles are cluster trust bundles in memory. The zero value has none. It may be used from several goroutines.
type TrustBundles struct {
	// Fault is called before the bundles are listed. With an error they are not known. Nil: they always are.
	Fault func() error

	mu       sync.Mutex // guards what follows
	bundles  map[string]volume.TrustBundle
	watchers map[int]func(kind, namespace, name string)
	watched  int
}

var _ volume.TrustBundleLister = (*TrustBundles)(nil)

// TrustBundles returns all bundles, sorted by their names.
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

// Put adds a bundle, or replaces one of its name, and tells the watchers.
func (b *TrustBundles) Put(bundle volume.TrustBundle) {
	b.change(bundle.Name, func() { b.bundles[bundle.Name] = bundle })
}

// Delete removes a bundle and tells the watchers.
func (b *TrustBundles) Delete(name string) { b.change(name, func() { delete(b.bundles, name) }) }

func (b *TrustBundles) change(name string, do func()) {
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

// Watch calls changed for each bundle that changes, until ctx ends: it is a volume.Watcher.
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
