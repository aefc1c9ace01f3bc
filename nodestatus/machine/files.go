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

// How much of a file or directory is read. Files of the kernel are far smaller.
const (
	maxFile  = 64 << 10
	maxCPUs  = 1 << 16
	maxSizes = 64  // sizes of huge pages; machines have up to four
	maxID    = 253 // bytes of an ID, which is published
)

// files are those of a machine.
type files struct{ fs.FS }

// read returns a file, if it is one: nothing is waited for that a pipe may have.
func (f files) read(name string) ([]byte, error) {
	info, err := fs.Stat(f.FS, name) // that of f would open it
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
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

// id returns a file that is one word.
func (f files) id(name string) (string, error) {
	text, err := f.read(name)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: is no ID: %.40q", name, id)
	}
	return id, nil
}

// first returns the first ID that there is, or nothing.
func (f files) first(names ...string) string {
	for _, name := range names {
		if id, err := f.id(name); err == nil {
			return id
		}
	}
	return ""
}

// list returns the first entries of a directory.
func (f files) list(name string) ([]fs.DirEntry, error) {
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
