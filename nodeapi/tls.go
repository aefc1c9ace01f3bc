// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/freshfile"
)

// TLSOptions configures [TLSConfig].
type TLSOptions struct {
	// GetCertificate returns the serving certificate of a handshake: the method of [ServingFiles], or of package cert. Required.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns the CAs that the server names when it requests a client certificate; nil names none. It is a hint to
	// clients: package auth verifies certificates.
	ClientCAs func() *x509.CertPool

	MinVersion       uint16        // zero means TLS 1.2
	CipherSuites     []uint16      // for TLS 1.2; nil means those of package tls
	CurvePreferences []tls.CurveID // nil means those of package tls
}

// TLSConfig returns the TLS configuration for an [Endpoint], with HTTP/2. The TLS handshake requests a client certificate without
// verifying it. A request with an invalid certificate gets a 401 response.
func TLSConfig(opts TLSOptions) (*tls.Config, error) {
	if opts.GetCertificate == nil {
		return nil, fmt.Errorf("nodeapi: TLSConfig: TLSOptions.GetCertificate: required: see ServingFiles")
	}
	if opts.MinVersion == 0 {
		opts.MinVersion = tls.VersionTLS12
	}
	config := &tls.Config{
		GetCertificate: opts.GetCertificate, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
		MinVersion: opts.MinVersion, CipherSuites: opts.CipherSuites, CurvePreferences: opts.CurvePreferences,
	}
	if opts.ClientCAs == nil {
		return config, nil
	}
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := config.Clone()
		c.ClientCAs = opts.ClientCAs()
		return c, nil
	}
	return outer, nil
}

// ServingFiles has the serving certificate read from a certificate file and a key file. It reads the files again after a change:
// a rename, a replaced symbolic link, or a write. While the files are invalid it keeps the previous certificate.
type ServingFiles struct {
	value *freshfile.Value[*tls.Certificate]
}

// NewServingFiles reads a certificate chain and its private key from two PEM files, and reloads them after each change. The
// files must exist. If a reload fails, it calls fail(err), once per error. fail must not block and may be nil.
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

// GetCertificate returns the current certificate. A changed file is read within a second.
func (f *ServingFiles) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.value.Get(), nil
}
