// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Limits for reading files and directories. The kernel's files are far smaller.
const (
	maxFile  = 64 << 10
	maxCPUs  = 1 << 16
	maxSizes = 64  // huge page sizes; machines have up to four
	maxID    = 253 // bytes of an ID, because IDs are published
)

// files reads files below the root directory of a machine, with limits on their sizes.
type files struct{ fs.FS }

// readFile returns the content of a regular file of at most maxFile bytes.
func (f files) readFile(name string) ([]byte, error) {
	info, err := fs.Stat(f.FS, name) // the method fs.FS.Stat of f could open the file
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		// Opening a pipe could block.
		return nil, fmt.Errorf("%s: is not a file: %s", name, info.Mode())
	}
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: has more than %d bytes", name, maxFile)
	}
	return text, err
}

// readID returns the content of a file that consists of printable ASCII characters, without surrounding spaces.
func (f files) readID(name string) (string, error) {
	text, err := f.readFile(name)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: is no ID: %.40q", name, id)
	}
	return id, nil
}

// firstID returns the ID in the first of these files that can be read. If no file can be read, it returns an empty string.
func (f files) firstID(names ...string) string {
	for _, name := range names {
		if id, err := f.readID(name); err == nil {
			return id
		}
	}
	return ""
}

// listDir returns at most maxSizes entries of a directory.
func (f files) listDir(name string) ([]fs.DirEntry, error) {
	dir, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	d, ok := dir.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%s: is not a directory", name)
	}
	entries, err := d.ReadDir(maxSizes)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
