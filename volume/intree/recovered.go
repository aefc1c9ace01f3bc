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

// recoveredTimeout is the maximum time for fetching the objects of a volume that has usable files from a previous agent process.
// It is short, because containers wait for the volume.
const recoveredTimeout = 3 * time.Second

// maxCredential is the maximum size of a token or certificate file in bytes.
const maxCredential = 256 << 10

// isUsable reports whether a previous agent process has left all files of the volume, and no token or certificate in them
// has expired.
func (w *fileVolume) isUsable(vol volume.Volume) bool {
	if !vol.Recovered || vol.Update {
		return false
	}
	if w.memory { // after a reboot the tmpfs is not mounted
		if mounted, err := mount.IsMountPoint(vol.Dir); err != nil || !mounted {
			return false
		}
	}
	root, err := os.OpenRoot(vol.Dir)
	if err != nil {
		return false
	}
	defer root.Close()
	info, err := root.Stat("..data") // the link exists only if all files were written
	if err != nil || !info.IsDir() {
		return false
	}
	return vol.Source.Projected == nil || checkCredentials(root, vol.Source.Projected, time.Now()) == nil
}

// checkCredentials returns an error if a token or certificate of a projected volume is missing or has expired. root is the
// directory of the volume.
func checkCredentials(root *os.Root, p *corev1.ProjectedVolumeSource, now time.Time) error {
	for i := range p.Sources {
		var expires time.Time
		var err error
		switch s := &p.Sources[i]; {
		case s.ServiceAccountToken != nil:
			expires, err = tokenExpiry(root, s.ServiceAccountToken.Path)
		case s.PodCertificate != nil:
			path := s.PodCertificate.CertificateChainPath
			if path == "" {
				path = s.PodCertificate.CredentialBundlePath
			}
			expires, err = certificateExpiry(root, path)
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

func tokenExpiry(root *os.Root, path string) (time.Time, error) {
	text, err := readCredential(root, path)
	if err != nil {
		return time.Time{}, err
	}
	return token.ParseExpiry(string(text))
}

// certificateExpiry returns the expiry time of the first certificate in the PEM file at path. The file may contain a key
// before the certificate.
func certificateExpiry(root *os.Root, path string) (time.Time, error) {
	text, err := readCredential(root, path)
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

// readCredential returns the contents of a regular file of at most maxCredential bytes in root, the directory of a volume.
func readCredential(root *os.Root, path string) ([]byte, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // no symbolic link leads out of root
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
