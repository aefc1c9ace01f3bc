// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/freshfile"
)

// TLSOptions say how an endpoint encrypts.
type TLSOptions struct {
	// GetCertificate returns the serving certificate of a handshake: that of [ServingFiles], or of package cert. It is required.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns whose certificates clients are asked for; nil asks for any. It is a hint: package auth decides.
	ClientCAs func() *x509.CertPool

	MinVersion       uint16        // zero means TLS 1.2
	CipherSuites     []uint16      // of TLS 1.2; nil means those of package tls
	CurvePreferences []tls.CurveID // nil means those of package tls
}

// TLSConfig returns a configuration for an [Endpoint]. A client may have a certificate, which is not verified in the handshake, so that a
// bad one is answered with 401 instead of a broken connection. HTTP/2 is offered.
func TLSConfig(o TLSOptions) (*tls.Config, error) {
	if o.GetCertificate == nil {
		return nil, fmt.Errorf("nodeapi: TLSConfig: TLSOptions.GetCertificate: required: see ServingFiles")
	}
	if o.MinVersion == 0 {
		o.MinVersion = tls.VersionTLS12
	}
	config := &tls.Config{
		GetCertificate: o.GetCertificate, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
		MinVersion: o.MinVersion, CipherSuites: o.CipherSuites, CurvePreferences: o.CurvePreferences,
	}
	if o.ClientCAs == nil {
		return config, nil
	}
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := config.Clone()
		c.ClientCAs = o.ClientCAs()
		return c, nil
	}
	return outer, nil
}

// ServingFiles has the serving certificate of two files, and reads them again when their content has changed: replaced by a rename, by a
// swapped link, or in place. Files that cannot be read, or do not belong together, leave what was there before.
type ServingFiles struct {
	value *freshfile.Value[*tls.Certificate]
}

// NewServingFiles reads a certificate with its chain, and its key, both in PEM, from files that are there. fail is told why later ones are
// not used, once each; it must not block, and may be nil.
func NewServingFiles(certFile, keyFile string, fail func(error)) (*ServingFiles, error) {
	value, err := freshfile.New(func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("serving certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}, fail, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: NewServingFiles: %w", err)
	}
	return &ServingFiles{value: value}, nil
}

// GetCertificate returns the certificate of the files, as of a second ago at most.
func (f *ServingFiles) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.value.Get(), nil
}
