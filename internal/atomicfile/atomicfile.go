// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files atomically: a reader sees the old or the new content, never a mix. It does not lock: of two
// concurrent writers the last one wins.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// WriteFile replaces the content of the file at path by data, and returns when data is on disk. The file gets the mode perm,
// regardless of the umask. After an error the file has its old content, or the new content if only the sync of its directory
// failed.
//
// If path is not a regular file, for example a symbolic link, WriteFile returns an error. A writer that is killed leaves a
// temporary file, which [Clean] removes.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return wrapError(path, replaceFile(path, data, perm, true))
}

// Replace replaces the content of a file like [WriteFile], but does not wait for the disk, which makes it a hundred times
// cheaper. After a kill of this process the file has the old or the new content. After a power failure it may have the old
// content, be empty or be missing.
func Replace(path string, data []byte, perm fs.FileMode) error {
	return wrapError(path, replaceFile(path, data, perm, false))
}

func wrapError(path string, err error) error {
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

func replaceFile(path string, data []byte, perm fs.FileMode, durable bool) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file: %s", info.Mode())
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "." // CreateTemp would use the system's temporary directory for an empty name
	}
	f, err := os.CreateTemp(dir, "."+name+".*"+suffix)
	if err != nil {
		return err
	}
	if err := errors.Join(writeTemp(f, data, perm, durable), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if !durable {
		return nil
	}
	return SyncDir(dir)
}

// suffix is the extension of temporary files.
const suffix = ".tmp"

// writeTemp writes data to a temporary file, and to the disk if durable is true. The file stays private until it is
// complete.
func writeTemp(f *os.File, data []byte, perm fs.FileMode, durable bool) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return f.Sync()
}

// SyncDir waits until the entries of the directory dir are on disk, so that files created in it exist after a power failure.
// It does nothing on Windows, and on file systems that cannot sync a directory.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// Clean removes the temporary files that killed writers of the file at path have left in its directory. It must not run
// concurrently with a writer of this file. A missing directory is no error.
func Clean(path string) error {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up after %s: %w", path, err)
	}
	var errs []error
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "."+name+".")
		number, isTemp := strings.CutSuffix(rest, suffix)
		// Another suffix belongs to a file whose name starts with this one.
		if ok && isTemp && number != "" && strings.Trim(number, "0123456789") == "" {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up after %s: %w", path, err)
	}
	return nil
}
