// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzParseRecord checks that a parsed line equals the encoding of its record: only canonical lines are accepted.
func FuzzParseRecord(f *testing.F) {
	f.Add(storeRecord{key: Key{PodUID: "u1", Container: "web", Kind: Readiness}, value: Value{"containerd://a", Success}}.appendLine(nil))
	f.Add(storeRecord{key: Key{PodUID: "u\n1 \"", Container: "\x00", Kind: Liveness}}.appendLine(nil))
	f.Add([]byte("00000000 []\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseRecord(line)
		if err != nil {
			return
		}
		again, err := parseRecord(r.appendLine(nil))
		require.NoError(t, err)
		require.Equal(t, r, again)
		for i := range line {
			_, err := parseRecord(line[:i])
			require.Error(t, err, "a truncated line is rejected")
		}
	})
}

// FuzzRecord checks that every record is encoded as one line and parsed back unchanged, if its names are valid UTF-8.
func FuzzRecord(f *testing.F) {
	f.Add("u1", "web", "containerd://a", uint8(1), uint8(1))
	f.Add("u\n1", "\x00\"", "\u2028", uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, pod, container, id string, kind, outcome uint8) {
		r := storeRecord{
			key:   Key{PodUID: pod, Container: container, Kind: Kind(kind % 3)},
			value: Value{ContainerID: id, Outcome: Outcome(outcome % 4)},
		}
		line := r.appendLine(nil)
		require.Equal(t, 1, bytes.Count(line, []byte("\n")))
		got, err := parseRecord(line)
		require.NoError(t, err)
		if utf8.ValidString(pod) && utf8.ValidString(container) && utf8.ValidString(id) {
			require.Equal(t, r, got)
		}
	})
}
