// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/x509"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/freshfile"
)

// CAFile has the CA certificates read from a PEM file. It reads the file again after a change: a rename, a replaced symbolic
// link, or a write. While the file is invalid it keeps the previous certificates.
type CAFile struct {
	value *freshfile.Value[*x509.CertPool]
}

// NewCAFile reads CA certificates from the PEM file at path, and reloads them after each change. The file must exist. If a
// reload fails, it calls fail(err), once per error. fail must not block and may be nil.
func NewCAFile(path string, fail func(error)) (*CAFile, error) {
	value, err := freshfile.New(func(contents [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[0]) {
			return nil, fmt.Errorf("client CA file %s: has no certificate", path)
		}
		return pool, nil
	}, fail, path)
	if err != nil {
		return nil, fmt.Errorf("auth: NewCAFile: %w", err)
	}
	return &CAFile{value: value}, nil
}

// Pool returns the current certificates. A changed file is read within a second.
func (c *CAFile) Pool() *x509.CertPool { return c.value.Get() }
