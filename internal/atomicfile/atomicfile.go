// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files as a whole: a reader finds the old content or the new one, never a mix. It locks nothing: of two writers at the same time the one that comes last wins.
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

// WriteFile makes data the content of the file at path and returns when both are on the disk. The file gets exactly
// the mode perm, whatever the umask and whatever it had before. What is no regular file, a link included, is refused.
//
// On an error the file is as it was, but for one case: if only the last step fails, the sync of the directory, the
// new content is there and may be gone after a loss of power. A writer that is killed leaves a temporary file beside
// path, whose name begins with a dot; see [Clean].
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return named(path, writeFile(path, data, perm, true))
}

// Replace is WriteFile that does not wait for the disk, and costs a hundredth: a machine that loses power may come back
// with the old content, an empty file or none. A process that is killed leaves the old or the new one.
func Replace(path string, data []byte, perm fs.FileMode) error {
	return named(path, writeFile(path, data, perm, false))
}

func named(path string, err error) error {
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

func writeFile(path string, data []byte, perm fs.FileMode, lasting bool) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file: %s", info.Mode())
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "." // CreateTemp would take the empty string for the system's directory of temporary files
	}
	f, err := os.CreateTemp(dir, "."+name+".*"+suffix)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f, data, perm, lasting), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if !lasting {
		return nil
	}
	return SyncDir(dir)
}

// suffix ends the names of temporary files.
const suffix = ".tmp"

// fill writes a temporary file. It is private to the user until its content is there.
func fill(f *os.File, data []byte, perm fs.FileMode, lasting bool) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if !lasting {
		return nil
	}
	return f.Sync()
}

// SyncDir brings the names in a directory to the disk. Windows does so by itself, and some network file systems have
// no such call.
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

// Clean removes the temporary files that killed writers of the file at path have left. Nobody may be writing it. A
// directory that is not there is clean.
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
		// Anything but a number belongs to another file, whose name begins like this one's.
		if ok && isTemp && number != "" && strings.Trim(number, "0123456789") == "" {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up after %s: %w", path, err)
	}
	return nil
}
