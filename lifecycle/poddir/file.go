// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Some files of a pod are its containers' to write to, and what can write to the whole directory may put anything in the
// place of any file. So nothing is opened that is no regular file: a pipe would be waited for, and a link would lead to the
// files of the host. A directory below that of the pod may be a link; an [os.Root] keeps that from leading out.

// errIrregular is why a file is not opened.
var errIrregular = errors.New("it is no regular file")

// openRegular opens a regular file that is there.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	found, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !found.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s", errIrregular, found.Mode())
	}
	f, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(found, opened) { // it was replaced meanwhile
		return nil, errors.Join(errIrregular, err, f.Close())
	}
	return f, nil
}

// openInPlace opens a file to write to it in place, since containers have mounted the file and not the name. One that is not
// there is made, and so is one that is no regular file, for which that goes.
func openInPlace(root *os.Root, name string) (*os.File, error) {
	f, err := openRegular(root, name, os.O_RDWR)
	if err == nil || !errors.Is(err, errIrregular) && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// replaceContent makes content the content of a file in place, with a mode that does not depend on the umask. The file may
// hold anything, so it is read only if it has the size that it is to have.
func replaceContent(root *os.Root, name string, content []byte, mode fs.FileMode) (err error) {
	f, err := openInPlace(root, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == int64(len(content)) {
		have := make([]byte, len(content))
		if _, err := f.ReadAt(have, 0); err == nil && string(have) == string(content) {
			return nil
		}
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(content)))
}

// readFile reads a regular file of so many bytes at most.
func readFile(path string, most int64) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openRegular(root, filepath.Base(path), os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return data, err
}
