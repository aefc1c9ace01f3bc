// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certificateValidity is the lifetime of certificates. No test control plane runs longer. Certificates are valid from two
// hours before their creation, because clocks differ.
const certificateValidity = 365 * 24 * time.Hour

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // of cert
}

// keyPair is a certificate and its key, both as PEM.
type keyPair struct{ cert, key []byte }

// newAuthority returns a self-signed authority.
func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := signCertificate(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

// readAuthority reads a certificate authority from the files of its certificate and key, such as the files of kubeadm.
func readAuthority(certFile, keyFile string) (*authority, error) {
	text, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("read %s: it is not PEM", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", certFile, err)
	}
	key, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyFile, err)
	}
	signer, ok := key.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read %s: a %T does not sign", keyFile, key.PrivateKey)
	}
	return &authority{cert: cert, key: signer, pem: text}, nil
}

// keyPEM returns the key of an authority of [newAuthority].
func (a *authority) keyPEM() ([]byte, error) {
	key, ok := a.key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("encode key of %q: it is a %T", a.cert.Subject.CommonName, a.key)
	}
	return encodeKey(key)
}

// clientPair issues a client certificate for this user and these groups. It returns the certificate with its key.
func (a *authority) clientPair(user string, groups ...string) (keyPair, error) {
	return a.clientPairUntil(time.Now().Add(certificateValidity), user, groups...)
}

// clientPairUntil issues a client certificate for this user and these groups that expires at the time end. It returns the
// certificate with its key.
func (a *authority) clientPairUntil(end time.Time, user string, groups ...string) (keyPair, error) {
	return a.issuePair(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// serverPair issues a certificate for a server on the loopback interface. It returns the certificate with its key.
func (a *authority) serverPair(name string) (keyPair, error) {
	return a.issuePair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", MetricsServer + ".kube-system.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(firstServiceIP)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) issuePair(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := signCertificate(template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	return keyPair{cert: encodePEM("CERTIFICATE", der), key: keyPEM}, err
}

// signCertificate signs a certificate for the key public and returns it as DER. parent is the certificate of the authority.
func signCertificate(template, parent *x509.Certificate, public crypto.PublicKey, parentKey crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if template.NotAfter.IsZero() {
		template.NotAfter = now.Add(certificateValidity)
	}
	template.SerialNumber, template.NotBefore = serial, now.Add(-2*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, parentKey)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %q: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// newSigningKey returns a new PEM-encoded key pair for signing service account tokens.
func newSigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	private, err = encodeKey(key)
	der, publicErr := x509.MarshalPKIXPublicKey(key.Public())
	return private, encodePEM("PUBLIC KEY", der), errors.Join(err, publicErr)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encodePEM("EC PRIVATE KEY", der), err
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
