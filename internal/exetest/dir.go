// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir is a directory of files that a program reads while it runs.
type Dir struct {
	Path string

	t testing.TB
}

// NewDir creates a directory for files that a program reads. It is removed when the test ends.
func NewDir(t testing.TB) Dir {
	t.Helper()
	return Dir{Path: t.TempDir(), t: t}
}

// Write creates the file d.Path/name with the given content, or replaces it atomically. It creates missing directories in
// name.
func (d Dir) Write(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.Path, name)
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		d.t.Fatal(err)
	}
}

// Remove removes the file whose path in d is name.
func (d Dir) Remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.Path, name)); err != nil {
		d.t.Fatal(err)
	}
}
