// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plainfile opens regular files in directories where others may put anything in the place of any file, such as those
// of pods: a pipe would be waited for, and a link would lead to the files of the host. A directory on the way may be a link;
// an [os.Root] keeps that from leading out.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Why a file is not read that is there.
var (
	ErrIrregular = errors.New("it is no regular file")
	ErrTooLarge  = errors.New("it is too large")
)

// Open opens a regular file that is there.
func Open(root *os.Root, name string, flag int) (*os.File, error) {
	found, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !found.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s", ErrIrregular, found.Mode())
	}
	f, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(found, opened) { // it was replaced meanwhile
		return nil, errors.Join(ErrIrregular, err, f.Close())
	}
	return f, nil
}

// Read reads a regular file of so many bytes at most. Its error is an [fs.PathError], which names the file.
func Read(path string, most int64) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := Open(root, filepath.Base(path), os.O_RDONLY)
	if err != nil {
		return nil, named(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
	}
	return data, named(path, err)
}

// named returns an error with the whole path of a file, which one of an [os.Root] does not have.
func named(path string, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*fs.PathError](err); ok {
		err = known.Err
	}
	return &fs.PathError{Op: "read", Path: path, Err: err}
}
