// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// KeyTypes returns the values of the field keyType that [GenerateKey] supports.
func KeyTypes() []string {
	return []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}
}

// GenerateKey generates a private key of one of the [KeyTypes] as PEM-encoded PKCS #8. stub is a DER-encoded PKCS #10
// request without a subject, which proves the possession of the key. An RSA key takes seconds of CPU time.
func GenerateKey(keyType string) (key, stub []byte, err error) {
	private, err := generateSigner(keyType)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	if stub, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private); err != nil {
		return nil, nil, fmt.Errorf("sign request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub, nil
}

func generateSigner(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return private, err
	}
	return nil, fmt.Errorf("unknown key type %.64q", keyType)
}

// Limits of a certificate chain.
const (
	maxChain  = 1 << 20 // bytes
	maxBlocks = 100     // number of certificates
)

// NormalizeChain returns the certificates in chain as PEM blocks, without PEM headers and without text outside of the
// blocks. It returns an error if chain has no PEM block or is too large.
func NormalizeChain(chain []byte) ([]byte, error) {
	if len(chain) > maxChain {
		return nil, fmt.Errorf("certificate chain has %d bytes, more than %d", len(chain), maxChain)
	}
	var clean bytes.Buffer
	n := 0
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		if n++; n > maxBlocks {
			return nil, fmt.Errorf("certificate chain has more than %d certificates", maxBlocks)
		}
		clean.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if n == 0 {
		return nil, errors.New("certificate chain has no certificate")
	}
	return clean.Bytes(), nil
}
