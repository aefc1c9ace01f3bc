// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Usages returns what a certificate of a signer may be used for. Those of RSA keys are also for key encipherment.
func Usages(signerName string, public crypto.PublicKey) []certificatesv1.KeyUsage {
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	if _, ok := public.(*rsa.PublicKey); ok {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	if signerName == certificatesv1.KubeletServingSignerName {
		return append(usages, certificatesv1.UsageServerAuth)
	}
	return append(usages, certificatesv1.UsageClientAuth)
}

// NewRequest returns a CertificateSigningRequest for a template that is signed with a key. It has no name: the API server
// makes one up that begins with csr-.
func NewRequest(t Template, signerName string, key crypto.Signer) (*certificatesv1.CertificateSigningRequest, error) {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: t.CommonName, Organization: t.Organization}, DNSNames: t.DNSNames,
	}
	for _, ip := range t.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("sign request for %q: %w", t.CommonName, err)
	}
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der}), SignerName: signerName,
		Usages: Usages(signerName, key.Public()),
	}}
	r.GenerateName = "csr-"
	return r, nil
}

// RequestName returns the name of the request for a client certificate that [Bootstrap] makes: it follows from the key and the
// template, so that an agent that was restarted finds the request that it has made before.
func RequestName(t Template, public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	var all bytes.Buffer
	write := func(data []byte) { all.WriteString(base64.RawURLEncoding.EncodeToString(data) + "|") }
	write(der)
	write([]byte(t.CommonName))
	for _, o := range t.Organization {
		write([]byte(o))
	}
	for _, u := range []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth} {
		write([]byte(u))
	}
	if _, ok := public.(*rsa.PublicKey); ok { // last here: names of requests must not change between versions
		write([]byte(certificatesv1.UsageKeyEncipherment))
	}
	sum := sha512.Sum512_256(all.Bytes())
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// Reusable returns an error if a request that is there is not what another one asks for, made with this key, or its certificate
// has expired.
func Reusable(there, wanted *certificatesv1.CertificateSigningRequest, public crypto.PublicKey, now time.Time) error {
	have, err := parseRequest(there.Spec.Request)
	if err != nil {
		return fmt.Errorf("request %s: %w", there.Name, err)
	}
	want, err := parseRequest(wanted.Spec.Request)
	if err != nil {
		return err
	}
	if have.Subject.String() != want.Subject.String() {
		return fmt.Errorf("request %s: its subject is %q, not %q", there.Name, have.Subject, want.Subject)
	}
	if there.Spec.SignerName != wanted.Spec.SignerName {
		return fmt.Errorf("request %s: its signer is %q, not %q", there.Name, there.Spec.SignerName, wanted.Spec.SignerName)
	}
	have.PublicKey = public
	if err := have.CheckSignature(); err != nil {
		return fmt.Errorf("request %s: it was made with another key: %w", there.Name, err)
	}
	if len(there.Status.Certificate) == 0 {
		return nil
	}
	chain, err := parseChain(there.Status.Certificate)
	if err != nil {
		return fmt.Errorf("request %s: %w", there.Name, err)
	}
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("request %s: its certificate has expired at %s", there.Name, c.NotAfter.Format(time.RFC3339))
		}
	}
	return nil
}

// RefusedError is about a request that will never be issued.
type RefusedError struct {
	Request string // its name
	Denied  bool   // by a controller or a person; else the signer has failed
	Reason  string // of the condition
	Message string // of the condition
}

// Error names the request and says why.
func (e *RefusedError) Error() string {
	verb := "has failed"
	if e.Denied {
		verb = "was denied"
	}
	return fmt.Sprintf("certificate signing request %s %s: %.200q: %.1000q", e.Request, verb, e.Reason, e.Message)
}

// Outcome returns the certificate of a request that was made with that UID, as PEM, nil as long as there is none, or why there
// will be none. The request is nil when there is none of that name.
func Outcome(r *certificatesv1.CertificateSigningRequest, name string, uid types.UID) ([]byte, error) {
	if r == nil {
		return nil, fmt.Errorf("certificate signing request %s was deleted", name)
	}
	if r.UID != uid {
		return nil, fmt.Errorf("certificate signing request %s was replaced by another one: its UID is %q, not %q", name, r.UID, uid)
	}
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, &RefusedError{Request: name, Denied: c.Type == certificatesv1.CertificateDenied, Reason: c.Reason, Message: c.Message}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(r.Status.Certificate) == 0 {
		return nil, nil
	}
	return r.Status.Certificate, nil
}

// newKey makes a private key, and returns it as PEM, too.
func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: blockECKey, Bytes: der}), nil
}

// Types of blocks of PEM.
const (
	blockCertificate = "CERTIFICATE"
	blockRequest     = "CERTIFICATE REQUEST"
	blockECKey       = "EC PRIVATE KEY"
	blockRSAKey      = "RSA PRIVATE KEY"
	blockAnyKey      = "PRIVATE KEY" // the end of all of them
)

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != blockRequest {
		return nil, fmt.Errorf("it has no block %s of PEM", blockRequest)
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// maxChain is how many certificates one may come with.
const maxChain = 100

// parseChain reads certificates, the leaf first. What is between them is skipped.
func parseChain(data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("the certificate has %d bytes, more than %d", len(data), maxFile)
	}
	var chain []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != blockCertificate || len(block.Headers) > 0 {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(chain)+1, err)
		}
		if chain = append(chain, c); len(chain) > maxChain {
			return nil, fmt.Errorf("there are more than %d certificates", maxChain)
		}
	}
	if len(chain) == 0 {
		return nil, errors.New("it has no certificate")
	}
	return chain, nil
}
