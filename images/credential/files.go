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

// Files is a [Provider] that reads docker configurations of the node: the first of these paths that is there and can
// be read counts; one longer than 1 MiB cannot. A file of the name .dockercfg is in the old format. The kubelet's own list is config.json in
// --root-dir, in the working directory, in ~/.docker and in /.docker, then .dockercfg in --root-dir, in the working
// directory, in ~ and in /.
type Files []string

var _ Provider = Files(nil)

// Credentials reads the file. The error is about paths before the one that counts.
func (f Files) Credentials(_ context.Context, repository string, _ Pod) ([]Credential, error) {
	var errs []error
	for _, path := range f {
		ring, err := readFile(path)
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

// maxFile is how long a configuration may be, in bytes.
const maxFile = 1 << 20

// content reads a plain file of a bounded length. It does not wait for a pipe to be written to.
func content(path string) ([]byte, error) {
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
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFile)
	}
	return data, err
}

// readFile returns nil when nothing of a file can be used, and an error beside the keyring when some of it cannot.
func readFile(path string) (*Keyring, error) {
	data, err := content(path)
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
