// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
)

// maxFile is the largest size of a certificate, key or token file, in bytes.
const maxFile = 1 << 20

// fileCertificate returns a function that reads the client certificate and its key from files. Both may be in one file.
func fileCertificate(certFile, keyFile string) func() (*tls.Certificate, error) {
	// It is called for each new connection, so that the client uses the new certificate after a rotation.
	return func() (*tls.Certificate, error) {
		cert, err := readFile(certFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		key, err := readFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("read client key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return b, err
}
