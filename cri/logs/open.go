// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/seed81659283/nodeagent/internal/notexist"
)

// openRegular opens a log file. It returns an error for a named pipe.
func openRegular(path string) (*os.File, error) {
	// does not block on a named pipe, by which a container may have replaced the file
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("read log %s: it is no regular file: %s", path, info.Mode())
	}
	if err != nil {
		file.Close() // read only
		return nil, err
	}
	return file, nil
}

// openNoFollow opens a rotated log file. It returns an error for a symbolic link, which could lead to any file of the host.
func openNoFollow(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	if opened, err := file.Stat(); err != nil || !os.SameFile(info, opened) {
		file.Close() // read only
		return nil, nil, errors.Join(fmt.Errorf("read log %s: it is a link, or was replaced", path), err)
	}
	return file, info, nil
}

// createReplacing creates a file, in place of one that a previous agent process may have left.
func createReplacing(path string, mode fs.FileMode) (*os.File, error) {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}
