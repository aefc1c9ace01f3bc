// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files is a [Provider] that reads docker configurations of the node: the first of these paths that is there and can
// be read counts. A file of the name .dockercfg is in the old format. The kubelet's own list is config.json in
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

// readFile returns nil when nothing of a file can be used, and an error beside the keyring when some of it cannot.
func readFile(path string) (*Keyring, error) {
	data, err := os.ReadFile(path)
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
