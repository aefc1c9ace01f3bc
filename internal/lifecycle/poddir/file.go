// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"io/fs"
	"os"

	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// openInPlace opens a file for writing, and creates it if it is missing.
func openInPlace(root *os.Root, name string) (*os.File, error) {
	f, err := plainfile.Open(root, name, os.O_RDWR)
	// Running containers have mounted an existing file. A symbolic link is replaced.
	if err == nil || !errors.Is(err, plainfile.ErrIrregular) && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := notexist.Ignore(root.Remove(name)); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// replaceContent sets the content and the mode of a file, regardless of the umask. It does not replace the file, which
// containers have mounted.
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
