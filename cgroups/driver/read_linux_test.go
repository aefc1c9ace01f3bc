// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Swap usage that cannot be read is an error, not zero.
func TestReadMachineSwap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	read := func(text string) (n uint64, err error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		r := newReader("")
		r.readMachineSwap(file, &n)
		return n, r.readError()
	}
	for text, want := range map[string]uint64{
		"MemTotal: 8 kB\nSwapTotal:    2048 kB\nSwapFree:   1024 kB\n": 1 << 20,
		"MemTotal: 8 kB\n":                  0,
		"SwapTotal: 1 kB\nSwapFree: 2 kB\n": 0,
	} {
		n, err := read(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, n, text)
	}
	_, err := read("SwapTotal: 2048 kB\nSwapFree: many kB\n")
	assert.ErrorIs(t, err, strconv.ErrSyntax)
	require.NoError(t, os.Remove(file))
	var n uint64
	r := newReader("")
	r.readMachineSwap(file, &n)
	err = wrapError("read", "", r.readError())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.NotErrorIs(t, err, fs.ErrNotExist, "the error must not mean a missing cgroup")
	assert.ErrorContains(t, err, file)
}

// A directory with more entries than one getdents call returns is listed completely, without files.
func TestListChildrenOfLargeDirectory(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 2000 {
		name := fmt.Sprintf("pod%d-%s", i, strings.Repeat("x", i%100))
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cpu."+name), nil, 0o600))
		want = append(want, name)
	}
	h, err := openHierarchy(dir, nil)
	require.NoError(t, err)
	defer h.close()
	got, err := h.listChildren("")
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
	got, err = h.listChildren(want[0])
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = h.listChildren("gone")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
