// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package freshfile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/freshfile"
)

// Get returns a value that is at most MaxAge old. Invalid content does not change the value, and is reported once.
func TestGetReturnsChangedContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(content string) { require.NoError(t, os.WriteFile(path, []byte(content), 0o600)) }
	write("one")
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var failures []string
		v, err := freshfile.New(func(contents [][]byte) (string, error) {
			reads++
			if bytes.HasPrefix(contents[0], []byte("bad")) {
				return "", errors.New(string(contents[0]))
			}
			return string(contents[0]), nil
		}, func(err error) { failures = append(failures, err.Error()) }, path)
		require.NoError(t, err)
		write("two")
		assert.Equal(t, "one", v.Get(), "the value is not older than MaxAge")
		for _, step := range []struct{ content, want string }{
			{"two", "two"}, {"two", "two"}, {"bad", "two"}, {"bad", "two"}, {"bad again", "two"}, {"", ""}, {"six", "six"},
		} {
			write(step.content)
			time.Sleep(freshfile.MaxAge)
			assert.Equal(t, step.want, v.Get())
		}
		assert.Equal(t, 6, reads, "unchanged content is not parsed again")
		assert.Equal(t, []string{"bad", "bad again"}, failures)

		require.NoError(t, os.Remove(path))
		for range 3 {
			time.Sleep(freshfile.MaxAge)
			assert.Equal(t, "six", v.Get(), "a missing file does not change the value")
		}
		require.Len(t, failures, 3)
		assert.Contains(t, failures[2], path)
		write("seven")
		time.Sleep(freshfile.MaxAge)
		assert.Equal(t, "seven", v.Get())
	})
}

func TestInvalidFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(large, make([]byte, freshfile.MaxSize+1), 0o600))
	for path, want := range map[string]string{
		dir: "is no regular file", large: "has more than 1048576 bytes", filepath.Join(dir, "missing"): "no such file",
	} {
		_, err := freshfile.New(func([][]byte) (int, error) { return 0, nil }, nil, path)
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, path)
	}
}
