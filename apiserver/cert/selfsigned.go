// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// selfSignedValidity is the lifetime of a certificate of [SelfSigned], the same as in the kubelet.
const selfSignedValidity = 365 * 24 * time.Hour

// SelfSigned returns the paths of a self-signed serving certificate and its key, kubelet.crt and kubelet.key in the
// directory. It writes new files unless the existing certificate is for name and all ips and is valid for another day.
//
// Clients cannot verify the certificate, so the API server must run without --kubelet-certificate-authority.
func SelfSigned(dir, name string, ips []netip.Addr) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	if isStillValid(certFile, keyFile, name, ips, time.Now()) {
		return certFile, keyFile, nil
	}
	certificate, key, err := createSelfSigned(name, ips, time.Now())
	if err != nil {
		return "", "", fmt.Errorf("certificate for %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	// A process that is killed between the two writes leaves a mismatched pair, which the next start replaces.
	if err := atomicfile.WriteFile(keyFile, key, 0o600); err != nil {
		return "", "", err
	}
	return certFile, keyFile, atomicfile.WriteFile(certFile, certificate, 0o644)
}

// isStillValid reports whether the files contain a certificate for name and all ips that is valid for at least another day.
func isStillValid(certFile, keyFile, name string, ips []netip.Addr, now time.Time) bool {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil || now.Add(24*time.Hour).After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return false
	}
	good := pair.Leaf.VerifyHostname(name) == nil
	for _, ip := range ips {
		good = good && pair.Leaf.VerifyHostname(ip.String()) == nil
	}
	return good
}

// createSelfSigned returns a new self-signed serving certificate for name and ips, and its private key, as PEM.
func createSelfSigned(name string, ips []netip.Addr, now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s@%d", name, now.Unix())},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(selfSignedValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{name}, BasicConstraintsValid: true,
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
