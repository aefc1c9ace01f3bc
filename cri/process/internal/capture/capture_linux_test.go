// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Output of a command is read even after the deadline, while a background process holds the pipe open.
func TestBufferedOutputIsReadAfterDeadline(t *testing.T) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	defer to.Close()
	o := &Output{from: from, to: to, limit: 1 << 20}
	text := strings.Repeat("x", 60_000)
	_, err = to.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, from.SetReadDeadline(time.Now()))
	o.readPipe()
	assert.True(t, o.kept.String() == text, "all buffered output is read, got %d bytes", o.kept.Len())
	o.readPipe()
	assert.Equal(t, len(text), o.kept.Len(), "a second read returns nothing more")
}
