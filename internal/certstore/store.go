// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certstore keeps the certificates of a node with their keys in a directory, as the kubelet does, and encodes and decodes
// both as PEM. It requests no certificate.
package certstore

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// DefaultDir is the certificate directory of the kubelet.
const DefaultDir = "/var/lib/kubelet/pki"

// Prefixes of file names, the same as in the kubelet.
const (
	ClientPrefix  = "kubelet-client"
	ServingPrefix = "kubelet-server"
)

// ErrNoCertificate reports that a [Store] has no certificate.
var ErrNoCertificate = errors.New("there is no certificate")

// MaxFile is the largest size of a file with certificates, a key or a kubeconfig, in bytes.
const MaxFile = 1 << 20

// Options configures a [Store]. Prefix is required.
type Options struct {
	Dir    string // directory of the files, created at the first update; empty: DefaultDir
	Prefix string // prefix of the file names, such as ClientPrefix; required
	// CertFile and KeyFile are used while Dir has no other certificate. Empty: none.
	CertFile, KeyFile string
}

// Store keeps certificates with their keys in a directory, in the file layout of the kubelet: agent and kubelet can replace each
// other. Create one with [Open]. Its methods must not be called concurrently, and only one process may write.
type Store struct {
	opts       Options
	beforeStep func(operation string) // test hook, called before each operation that changes a file; nil: none
}

// Open returns the store in the directory opts.Dir, which need not exist. If a process was killed during an update, Open
// completes that update.
func Open(opts Options) (*Store, error) {
	if opts.Prefix == "" || strings.ContainsAny(opts.Prefix, `/\`) {
		return nil, fmt.Errorf("open store of certificates: Options.Prefix must be part of a file name, and is %q", opts.Prefix)
	}
	if opts.Dir == "" {
		opts.Dir = DefaultDir
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store of certificates: %w", err)
	}
	opts.Dir = dir
	s := &Store{opts: opts}
	if err := s.finishUpdate(); err != nil {
		return nil, fmt.Errorf("open store of certificates: %w", err)
	}
	return s, nil
}

// CurrentPath returns the path of the symbolic link to the current certificate. Its target file has both the certificate and the
// key.
func (s *Store) CurrentPath() string { return s.filePath("-current.pem") }

func (s *Store) updatedPath() string { return s.filePath("-updated.pem") }

func (s *Store) filePath(end string) string { return filepath.Join(s.opts.Dir, s.opts.Prefix+end) }

// finishUpdate completes an update whose process was killed before it renamed the updated link to the current link.
func (s *Store) finishUpdate() error {
	if there, err := allExist(s.CurrentPath()); err != nil || there {
		return err
	}
	if there, err := isLink(s.updatedPath()); err != nil || !there {
		return err
	}
	return s.runStep("recover", func() error { return os.Rename(s.updatedPath(), s.CurrentPath()) })
}

// runStep calls operate, which changes one file.
func (s *Store) runStep(operation string, operate func() error) error {
	if s.beforeStep != nil {
		// A test simulates a crash here.
		s.beforeStep(operation)
	}
	return operate()
}

// Current reads the current certificate and sets its Leaf: the certificate stored last, otherwise Options.CertFile with
// Options.KeyFile, otherwise PREFIX.crt with PREFIX.key in Options.Dir. If none exists, the error wraps [ErrNoCertificate].
// The error names unusable files.
func (s *Store) Current() (*tls.Certificate, error) {
	for _, files := range [][2]string{
		{s.CurrentPath(), s.CurrentPath()}, {s.opts.CertFile, s.opts.KeyFile}, {s.filePath(".crt"), s.filePath(".key")},
	} {
		there, err := allExist(files[0], files[1])
		if err != nil {
			return nil, err
		}
		if there {
			return readPair(files[0], files[1])
		}
	}
	return nil, fmt.Errorf("%w at %s", ErrNoCertificate, s.CurrentPath())
}

// Update stores the PEM certificate cert and its PEM key as the current certificate, and syncs them to disk. If it
// returns an error, the previous certificate is still current, unless only the sync of the directory has failed.
func (s *Store) Update(cert, key []byte) (*tls.Certificate, error) {
	data, err := joinPEM(cert, key)
	if err != nil {
		return nil, fmt.Errorf("store certificate in %s: %w", s.opts.Dir, err)
	}
	if err := s.CheckWritable(); err != nil {
		return nil, fmt.Errorf("store certificate: %w", err)
	}
	loaded, err := s.replaceCurrent(data)
	if err != nil {
		return nil, fmt.Errorf("store certificate: %w", err)
	}
	return loaded, nil
}

// CheckWritable checks the paths at which Update creates symbolic links. It returns an error if a file of another type
// has one of these paths, because Update does not replace such a file.
func (s *Store) CheckWritable() error {
	_, currentErr := isLink(s.CurrentPath())
	_, updatedErr := isLink(s.updatedPath())
	return errors.Join(currentErr, updatedErr)
}

// replaceCurrent writes data to a new file and makes it the current certificate file.
func (s *Store) replaceCurrent(data []byte) (*tls.Certificate, error) {
	if err := s.runStep("make directory", func() error { return os.MkdirAll(s.opts.Dir, 0o755) }); err != nil {
		return nil, err
	}
	path, err := s.writeFile(data, time.Now())
	if err != nil {
		return nil, err
	}
	loaded, err := readPair(path, path)
	if err != nil {
		return nil, err
	}
	if there, err := isLink(s.updatedPath()); err != nil {
		return nil, err
	} else if there { // left by a killed process
		if err := s.runStep("remove updated", func() error { return os.Remove(s.updatedPath()) }); err != nil {
			return nil, err
		}
	}
	if err := s.runStep("link updated", func() error { return os.Symlink(path, s.updatedPath()) }); err != nil {
		return nil, err
	}
	if err := s.runStep("rename updated", func() error { return os.Rename(s.updatedPath(), s.CurrentPath()) }); err != nil {
		return nil, err
	}
	return loaded, s.runStep("sync directory", func() error { return atomicfile.SyncDir(s.opts.Dir) })
}

// writeFile writes data to a new certificate file, whose name contains the time now, and returns its path.
func (s *Store) writeFile(data []byte, now time.Time) (path string, err error) {
	var f *os.File
	err = s.runStep("create", func() (err error) {
		for _, more := range []string{"", "-1", "-2", "-3", "-4", "-5"} {
			path = s.filePath("-" + now.Format("2006-01-02-15-04-05") + more + ".pem")
			// O_EXCL: an existing file may be current.
			if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	half := len(data) / 2
	err = s.runStep("write", func() error { _, err := f.Write(data[:half]); return err })
	if err == nil {
		err = s.runStep("write the rest", func() error { _, err := f.Write(data[half:]); return err })
	}
	if err == nil {
		err = s.runStep("sync", f.Sync)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// joinPEM returns the content of a certificate file: the certificates, leaf first, and the matching private key.
func joinPEM(cert, key []byte) ([]byte, error) {
	chain, err := ParseChain(cert)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	for _, c := range chain {
		data.Write(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: c.Raw}))
	}
	block, rest := pem.Decode(key)
	for block != nil && !strings.HasSuffix(block.Type, blockAnyKey) {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("it has no private key")
	}
	data.Write(pem.EncodeToMemory(block))
	_, err = tls.X509KeyPair(data.Bytes(), data.Bytes())
	return data.Bytes(), err
}

// readPair reads a certificate and its key.
func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key := cert
	if keyFile != certFile {
		if key, err = ReadFile(keyFile); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", certFile, err)
	}
	return &pair, nil
}

// ReadFile returns the content of a regular file of at most [MaxFile] bytes. It follows symbolic links and does not block on
// a pipe.
func ReadFile(path string) ([]byte, error) {
	found, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return plainfile.Read(found, MaxFile)
}

// allExist reports whether a file exists at every path. It returns false for a dangling link and for an empty path.
func allExist(paths ...string) (bool, error) {
	for _, path := range paths {
		if path == "" {
			return false, nil
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// isLink reports whether path is a symbolic link. Another kind of file is an error, a missing one is not.
func isLink(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && info.Mode().Type() != fs.ModeSymlink {
		err = fmt.Errorf("%s must be a symbolic link, and is %s: remove it, or move it away", path, info.Mode())
	}
	return err == nil, err
}
