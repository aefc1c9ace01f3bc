// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plainfile opens regular files in directories that untrusted programs can write to, such as those of pods. It neither
// blocks on a named pipe nor follows a symbolic link to a file of the host. Parent directories may be links; an [os.Root]
// confines them.
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

// Reasons for which a file that exists is not read.
var (
	ErrIrregular = errors.New("it is no regular file")
	ErrTooLarge  = errors.New("it is too large")
)

// Open opens the regular file name, which is relative to root and must exist. flag consists of flags of [os.OpenFile]. A
// file of another type is an error.
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

// Read returns the content of the regular file at path. It returns an error if the file has more than maxBytes bytes. Every
// error is an [fs.PathError].
func Read(path string, maxBytes int64) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := Open(root, filepath.Base(path), os.O_RDONLY)
	if err != nil {
		return nil, wrapError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxBytes)
	}
	return data, wrapError(path, err)
}

// wrapError returns an [fs.PathError] with the cause of err and the full path, or nil.
func wrapError(path string, err error) error {
	if err == nil {
		return nil
	}
	// Errors of an os.Root contain only the base name.
	if known, ok := errors.AsType[*fs.PathError](err); ok {
		err = known.Err
	}
	return &fs.PathError{Op: "read", Path: path, Err: err}
}
