// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sizes of volumes in bytes.
const (
	defaultSize = 64 << 20
	minSize     = 4 << 20
	maxSize     = 1 << 40
)

// store manages the files of volumes. Its lock serializes calls.
type store struct {
	mu  sync.Mutex
	dir string
}

func openStore(dir string) (*store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir}
	for _, sub := range []string{s.volumes(), s.inline()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *store) volumes() string { return filepath.Join(s.dir, "volumes") }

func (s *store) inline() string { return filepath.Join(s.dir, "inline") }

// plain matches valid handles of volumes, which are file names.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// findVolume returns the file of a volume, and whether the volume is inline.
func (s *store) findVolume(handle string) (path string, inline bool, err error) {
	if handle == "" {
		return "", false, status.Error(codes.InvalidArgument, "the volume ID is missing")
	}
	if plain.MatchString(handle) {
		for _, dir := range []string{s.volumes(), s.inline()} {
			path := filepath.Join(dir, handle+".img")
			if _, err := os.Stat(path); err == nil {
				return path, dir == s.inline(), nil
			}
		}
	}
	return "", false, status.Errorf(codes.NotFound, "there is no volume %.128q", handle)
}

// createVolume creates the file of a volume, unless it exists, and returns its size.
func createVolume(dir, handle string, size int64) (int64, error) {
	if !plain.MatchString(handle) {
		return 0, status.Errorf(codes.InvalidArgument, "%.128q is no valid name", handle)
	}
	path := filepath.Join(dir, handle+".img")
	if info, err := os.Stat(path); err == nil {
		return info.Size(), nil
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(f.Truncate(size), f.Close(), os.Rename(path+".new", path)); err != nil {
		return 0, err
	}
	return size, nil
}

// removeVolume deletes the file of a volume that is not in use.
func (s *store) removeVolume(path string) error {
	loop, err := findLoop(path)
	if err != nil {
		return err
	}
	if loop != "" {
		if err := detachLoop(loop); err != nil {
			return fmt.Errorf("%s is in use: %w", loop, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
