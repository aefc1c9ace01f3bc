// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Files is a [Provider] that reads docker configurations of the node. It uses the first of its paths with a readable file of at
// most 1 MiB. A file named .dockercfg has the old format. The kubelet's list is config.json in
// --root-dir, the working directory, ~/.docker and /.docker, then .dockercfg in --root-dir, the working directory, ~ and /.
type Files []string

var _ Provider = Files(nil)

// Credentials returns the credentials for the repository in the first usable file of f. The error names unusable files
// before that file, and invalid entries in it. The returned credentials are valid despite an error.
func (f Files) Credentials(_ context.Context, repository string, _ Pod) ([]Credential, error) {
	var errs []error
	for _, path := range f {
		ring, err := readKeyring(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ring != nil {
			return ring.Lookup(repository), errors.Join(errs...)
		}
	}
	return nil, errors.Join(errs...)
}

// maxFileSize is the maximum size of a configuration file in bytes.
const maxFileSize = 1 << 20

// readRegularFile returns the content of a regular file of at most maxFileSize bytes.
func readRegularFile(path string) ([]byte, error) {
	// O_NONBLOCK: opening a named pipe must not block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a plain file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFileSize)
	}
	return data, err
}

// readKeyring returns the credentials in a docker configuration file. If some entries are invalid, it returns the valid ones
// and an error.
func readKeyring(path string) (*Keyring, error) {
	data, err := readRegularFile(path)
	if err != nil {
		return nil, err
	}
	format := DockerConfigJSON
	if filepath.Base(path) == ".dockercfg" {
		format = Dockercfg
	}
	config, err := ParseConfig(data, format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ring := &Keyring{}
	if err := ring.Add(config, Source{}); err != nil {
		return ring, fmt.Errorf("%s: %w", path, err)
	}
	return ring, nil
}
