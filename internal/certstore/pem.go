// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certstore

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// NewKey returns a new ECDSA private key, and its PEM.
func NewKey() (private crypto.Signer, keyPEM []byte, err error) {
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

// Types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockECKey       = "EC PRIVATE KEY"
	blockRSAKey      = "RSA PRIVATE KEY"
	blockAnyKey      = "PRIVATE KEY" // suffix of all key types
)

// maxChain is the largest number of certificates in a chain.
const maxChain = 100

// ParseChain parses the certificates in PEM data, with the leaf first. It skips PEM blocks of other types. Data without a
// certificate is an error.
func ParseChain(data []byte) ([]*x509.Certificate, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("the certificate has %d bytes, more than %d", len(data), MaxFile)
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

// EncodeKey returns the private key of pair in two forms: as a signer, and as PEM. Only ECDSA and RSA keys are supported.
func EncodeKey(pair *tls.Certificate) (private crypto.Signer, keyPEM []byte, err error) {
	switch key := pair.PrivateKey.(type) {
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(key)
		return key, pem.EncodeToMemory(&pem.Block{Type: blockECKey, Bytes: der}), err
	case *rsa.PrivateKey:
		return key, pem.EncodeToMemory(&pem.Block{Type: blockRSAKey, Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
	default:
		return nil, nil, fmt.Errorf("a key is a %T, and neither ECDSA nor RSA", pair.PrivateKey)
	}
}

// ParseKey returns the first private key in PEM text.
func ParseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch {
		case block.Type == blockECKey:
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case block.Type == blockRSAKey:
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case strings.HasSuffix(block.Type, blockAnyKey):
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		}
		if signer, ok := key.(crypto.Signer); ok && err == nil {
			return signer, nil
		}
	}
	return nil, errors.New("it has no private key")
}
