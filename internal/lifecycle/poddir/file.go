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

// openInPlace opens the file with this name for writing, and creates it if it is missing. It keeps an existing regular file,
// because running containers have mounted it. It replaces any other file, such as a symbolic link.
func openInPlace(root *os.Root, name string) (*os.File, error) {
	f, err := plainfile.Open(root, name, os.O_RDWR)
	if err == nil || !errors.Is(err, plainfile.ErrIrregular) && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := notexist.Ignore(root.Remove(name)); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// replaceContent sets the content and the mode of the file with this name. It does not replace the file itself, because
// containers have mounted it. The umask has no effect. If the file already has this content, it is not written.
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
