// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/record"
)

// A record is decoded as it was encoded. A record of another kind or version, and one with any other byte, is an error.
func TestDecode(t *testing.T) {
	format := record.Format{Magic: "nodeagent-test", Version: "1", Content: "tests"}
	data := format.Encode([]byte("{}\n{}"))
	doc, err := format.Decode(data)
	require.NoError(t, err)
	require.Equal(t, "{}\n{}", string(doc))

	_, err = format.Decode([]byte("{}"))
	require.EqualError(t, err, "it is no record of tests")
	_, err = format.Decode(nil)
	require.EqualError(t, err, "it is no record of tests")
	_, err = record.Format{Magic: "nodeagent-test", Version: "2", Content: "tests"}.Decode(data)
	require.EqualError(t, err, `its version is "1", this program reads 2`)
	for i := range data {
		changed := append([]byte{}, data...)
		changed[i] ^= 1
		_, err = format.Decode(changed)
		require.Error(t, err, "byte %d", i)
	}
	_, err = format.Decode(data[:len(data)-1])
	require.EqualError(t, err, "its checksum does not match")
}
