// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package crilog_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process/internal/crilog"
)

// copyToEntries copies a reader to a new log and returns its entries without their times.
func copyToEntries(t testing.TB, r io.Reader) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dir", "0.log")
	w, err := crilog.Open(path)
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Copy("stdout", r))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var entries []string
	for line := range bytes.Lines(data) {
		stamp, entry, _ := strings.Cut(string(line), " ")
		_, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(stamp, "Z"))
		entries = append(entries, entry)
	}
	return entries
}

func TestCopy(t *testing.T) {
	full, over := strings.Repeat("x", crilog.MaxLine), strings.Repeat("x", crilog.MaxLine+1)
	for _, test := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\n\nb\n", []string{"stdout F a\n", "stdout F \n", "stdout F b\n"}},
		{"unfinished", "a\nb", []string{"stdout F a\n", "stdout P b\n"}},
		{"longest line", full + "\n", []string{"stdout F " + full + "\n"}},
		{"longer line", over + "\n", []string{"stdout P " + full + "\n", "stdout F x\n"}},
		{"longer line unfinished", over, []string{"stdout P " + full + "\n", "stdout P x\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, copyToEntries(t, strings.NewReader(test.in)))
			assert.Equal(t, test.want, copyToEntries(t, iotest.OneByteReader(strings.NewReader(test.in))), "read byte by byte")
		})
	}
}

// However the input is split into reads, the joined entries are the input, and no entry is too long.
func FuzzCopy(f *testing.F) {
	f.Add([]byte("a\nb"), false)
	f.Add(bytes.Repeat([]byte("x"), 3*crilog.MaxLine), true)
	f.Fuzz(func(t *testing.T, in []byte, halves bool) {
		var r io.Reader = bytes.NewReader(in)
		if halves {
			r = iotest.HalfReader(r)
		}
		var joined strings.Builder
		for _, entry := range copyToEntries(t, r) {
			content, partial := strings.CutPrefix(entry, "stdout P ")
			if partial {
				content = strings.TrimSuffix(content, "\n")
			} else {
				content, _ = strings.CutPrefix(entry, "stdout F ")
			}
			require.LessOrEqual(t, len(strings.TrimSuffix(content, "\n")), crilog.MaxLine)
			joined.WriteString(content)
		}
		require.True(t, joined.String() == string(in))
	})
}

// If the log directory was removed, Reopen creates it again.
func TestReopenCreatesMissingDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := crilog.Open(path)
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Copy("stdout", strings.NewReader("old\n")))
	require.NoError(t, w.Reopen(), "a second Reopen of the same file succeeds")
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, w.Reopen(), "Reopen fails for a directory")
	require.NoError(t, w.Copy("stdout", strings.NewReader("still old\n")))
	require.NoError(t, os.Remove(path))
	require.NoError(t, w.Reopen())
	require.NoError(t, w.Copy("stderr", strings.NewReader("new\n")))

	before, err := os.ReadFile(path + ".1")
	require.NoError(t, err)
	assert.Regexp(t, `^\S+ stdout F old\n\S+ stdout F still old\n$`, string(before))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Regexp(t, `^\S+ stderr F new\n$`, string(after))
}
