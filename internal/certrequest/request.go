// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certrequest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/seed81659283/nodeagent/internal/certstore"
)

// Usages returns the key usages to request for a certificate of the signer signerName. For an RSA key they include key
// encipherment.
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

// NewRequest returns a CertificateSigningRequest for these names, signed with key. The API server generates the name of the
// object, which starts with csr-.
func NewRequest(names Template, signerName string, key crypto.Signer) (*certificatesv1.CertificateSigningRequest, error) {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: names.CommonName, Organization: names.Organization}, DNSNames: names.DNSNames,
	}
	for _, ip := range names.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("sign request for %q: %w", names.CommonName, err)
	}
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der}), SignerName: signerName,
		Usages: Usages(signerName, key.Public()),
	}}
	r.GenerateName = "csr-"
	return r, nil
}

// RequestName returns the name of the CertificateSigningRequest that cert.Bootstrap creates. This name is a hash of the
// public key and the requested names, so that a restarted agent finds its earlier request.
func RequestName(names Template, public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	var all bytes.Buffer
	write := func(data []byte) { all.WriteString(base64.RawURLEncoding.EncodeToString(data) + "|") }
	write(der)
	write([]byte(names.CommonName))
	for _, o := range names.Organization {
		write([]byte(o))
	}
	for _, u := range []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth} {
		write([]byte(u))
	}
	if _, ok := public.(*rsa.PublicKey); ok { // last, because names of requests must not change between versions
		write([]byte(certificatesv1.UsageKeyEncipherment))
	}
	sum := sha512.Sum512_256(all.Bytes())
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// CheckReusable returns nil if the request existing can be used in place of wanted. Both must have the same subject and
// signer. existing must be signed with the key public, and its certificate, if issued, must not have expired.
func CheckReusable(existing, wanted *certificatesv1.CertificateSigningRequest, public crypto.PublicKey, now time.Time) error {
	have, err := parseRequest(existing.Spec.Request)
	if err != nil {
		return fmt.Errorf("request %s: %w", existing.Name, err)
	}
	want, err := parseRequest(wanted.Spec.Request)
	if err != nil {
		return err
	}
	if have.Subject.String() != want.Subject.String() {
		return fmt.Errorf("request %s: its subject is %q, not %q", existing.Name, have.Subject, want.Subject)
	}
	if existing.Spec.SignerName != wanted.Spec.SignerName {
		return fmt.Errorf("request %s: its signer is %q, not %q", existing.Name, existing.Spec.SignerName, wanted.Spec.SignerName)
	}
	have.PublicKey = public
	if err := have.CheckSignature(); err != nil {
		return fmt.Errorf("request %s: it was made with another key: %w", existing.Name, err)
	}
	if len(existing.Status.Certificate) == 0 {
		return nil
	}
	chain, err := certstore.ParseChain(existing.Status.Certificate)
	if err != nil {
		return fmt.Errorf("request %s: %w", existing.Name, err)
	}
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("request %s: its certificate has expired at %s", existing.Name, c.NotAfter.Format(time.RFC3339))
		}
	}
	return nil
}

// blockRequest is the PEM type of a certificate request.
const blockRequest = "CERTIFICATE REQUEST"

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != blockRequest {
		return nil, fmt.Errorf("it has no block %s of PEM", blockRequest)
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
