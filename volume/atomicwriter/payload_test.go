// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/volume/atomicwriter"
)

func TestValidateRefusesInvalidPayloads(t *testing.T) {
	long := strings.Repeat("x", 255)
	deep := strings.Repeat("d/", 127) + "f"
	for _, test := range []struct {
		paths, err string // paths are separated by spaces
	}{
		{"", ""},
		{"a", ""},
		{"a b c/d c/e/f", ""},
		{"a/..b a/b..", ""},
		{"..a", "must not begin with '..'"},
		{"..a/b", "must not begin with '..'"},
		{"./..data", "must not begin with '..'"},
		{"..data", "must not begin with '..'"},
		{".a ...", "must not begin with '..'"},
		{"a/..", "must not contain '..'"},
		{"a/../b", "must not contain '..'"},
		{"..", "must not contain '..'"},
		{"/a", "must be relative"},
		{".", "must name a file"},
		{"./", "must name a file"},
		{"a\x00b", "must not contain a zero byte"},
		{long, ""},
		{"a/" + long, ""},
		{"a/" + long + "x", "elements must not be longer than 255 bytes"},
		{strings.Repeat(long+"/", 17), "must not be longer than 4096 bytes"},
		{deep, ""},
		{"d/" + deep, "must not have more than 128 elements"},
		{"a a/b", `path "a/b": another file is a directory of it`},
		{"a/b/c a/b-c a/b", `path "a/b/c": another file is a directory of it`},
		{"a/b a//b", `path "a/b": another file is a directory of it, or has the same path`},
		{"a a/", "has the same path"},
	} {
		payload := map[string]atomicwriter.File{}
		for path := range strings.FieldsSeq(test.paths) {
			payload[path] = atomicwriter.File{Mode: 0o644}
		}
		err := atomicwriter.Validate(payload)
		if test.err == "" {
			require.NoError(t, err, test.paths)
		} else {
			require.ErrorContains(t, err, test.err, test.paths)
			require.Less(t, len(err.Error()), 400)
		}
	}
	require.ErrorContains(t, atomicwriter.Validate(map[string]atomicwriter.File{"": {}}), "must not be empty")
}

func TestValidateEnforcesLimits(t *testing.T) {
	payload := map[string]atomicwriter.File{}
	data := make([]byte, 1<<20)
	for i := range 64 {
		payload[fmt.Sprint(i)] = atomicwriter.File{Data: data}
	}
	require.NoError(t, atomicwriter.Validate(payload))
	payload["one more"] = atomicwriter.File{Data: data[:1]}
	require.EqualError(t, atomicwriter.Validate(payload), "payload of more than 67108864 bytes")

	clear(payload)
	for i := range atomicwriter.MaxFiles + 1 {
		payload[fmt.Sprint(i)] = atomicwriter.File{}
	}
	require.EqualError(t, atomicwriter.Validate(payload), "payload of 100001 files, not at most 100000")

	for _, mode := range []fs.FileMode{fs.ModeSetuid | 0o755, fs.ModeDir | 0o755, 0o1000} {
		require.ErrorContains(t, atomicwriter.Validate(map[string]atomicwriter.File{"a": {Mode: mode}}), "more than permission bits")
	}
}
