// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/volume"
)

// usableTimeout is how long all objects of a volume may take together that can be used as it is: a container waits for it.
const usableTimeout = 3 * time.Second

// maxCredential is how many bytes of a token or a certificate are read.
const maxCredential = 256 << 10

// usable reports whether an earlier agent has written a volume whole, with no token and no certificate that has expired.
func (w *written) usable(v volume.Volume) bool {
	if !v.Recovered || v.Update {
		return false
	}
	if w.memory { // or the machine was started again
		if mounted, err := mount.IsMountPoint(v.Dir); err != nil || !mounted {
			return false
		}
	}
	root, err := os.OpenRoot(v.Dir)
	if err != nil {
		return false
	}
	defer root.Close()
	info, err := root.Stat("..data") // the link that is made when all files are there
	if err != nil || !info.IsDir() {
		return false
	}
	return v.Source.Projected == nil || valid(root, v.Source.Projected, time.Now()) == nil
}

// valid returns why the files of a projected volume cannot be used at a time: a credential is missing or has expired.
func valid(root *os.Root, p *corev1.ProjectedVolumeSource, now time.Time) error {
	for i := range p.Sources {
		var expires time.Time
		var err error
		switch s := &p.Sources[i]; {
		case s.ServiceAccountToken != nil:
			expires, err = tokenExpires(root, s.ServiceAccountToken.Path)
		case s.PodCertificate != nil:
			path := s.PodCertificate.CertificateChainPath
			if path == "" {
				path = s.PodCertificate.CredentialBundlePath
			}
			expires, err = certificateExpires(root, path)
		default:
			continue
		}
		if err == nil && !now.Before(expires) {
			err = errors.New("it has expired")
		}
		if err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	return nil
}

func tokenExpires(root *os.Root, path string) (time.Time, error) {
	text, err := readIn(root, path)
	if err != nil {
		return time.Time{}, err
	}
	return token.Expiry(string(text))
}

// certificateExpires returns when the first certificate of a file expires, before which there may be a key.
func certificateExpires(root *os.Root, path string) (time.Time, error) {
	text, err := readIn(root, path)
	if err != nil {
		return time.Time{}, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, err
		}
		return c.NotAfter, nil
	}
	return time.Time{}, fmt.Errorf("%s has no certificate", path)
}

// readIn reads a regular file, which no link leads out of the volume for.
func readIn(root *os.Root, path string) ([]byte, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCredential {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes", path, maxCredential)
	}
	return io.ReadAll(io.LimitReader(f, maxCredential))
}
