// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// All files that a reader finds through one lookup of "..data" belong to one version.
func TestReadersSeeOneVersion(t *testing.T) {
	dir := t.TempDir()
	payload := func(version int) map[string]File {
		p := map[string]File{}
		for i := range 5 {
			p[fmt.Sprintf("f%d", i)] = File{Data: fmt.Appendf(nil, "%d", version), Mode: 0o644}
			p[fmt.Sprintf("d%d/f", i)] = p[fmt.Sprintf("f%d", i)]
		}
		return p
	}
	_, err := Write(dir, payload(0), Options{})
	require.NoError(t, err)
	stop, reads := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { reads <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			n += readOnce(t, filepath.Join(dir, dataName))
		}
	}()
	for version := range 100 {
		_, err := Write(dir, payload(version+1), Options{})
		require.NoError(t, err)
	}
	close(stop)
	t.Log(<-reads, "versions read")
}

// readOnce reads all files of a version and returns 1, or 0 if the version was removed during the read.
func readOnce(t *testing.T, data string) int {
	before, err := os.Readlink(data)
	if err != nil {
		t.Error(err) // there is always a current version
		return 0
	}
	root, err := os.OpenRoot(data)
	if err != nil {
		// The version may be removed between the two lookups of the link, but not before the link has changed.
		if now, _ := os.Readlink(data); !errors.Is(err, fs.ErrNotExist) || now == before {
			t.Error(err)
		}
		return 0
	}
	defer root.Close()
	first := ""
	for i := range 5 {
		for _, name := range []string{fmt.Sprintf("f%d", i), fmt.Sprintf("d%d/f", i)} {
			text, err := root.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) {
				return 0
			}
			if err != nil {
				t.Error(err)
			}
			if first == "" {
				first = string(text)
			}
			if string(text) != first {
				t.Errorf("%s is of version %q, other files of %q", name, text, first)
			}
		}
	}
	return 1
}
