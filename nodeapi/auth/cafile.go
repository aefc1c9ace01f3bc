// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/x509"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/freshfile"
)

// CAFile has the certificates of a file, in PEM, and reads it again when its content has changed: replaced by a rename, by a swapped link,
// or in place. A file that cannot be read or used leaves what was there before.
type CAFile struct {
	value *freshfile.Value[*x509.CertPool]
}

// NewCAFile reads a file that is there. fail is told why a later one is not used, once each; it must not block, and may be nil.
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

// Pool returns the certificates of the file, as of a second ago at most.
func (c *CAFile) Pool() *x509.CertPool { return c.value.Get() }
