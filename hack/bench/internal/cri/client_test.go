// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParsePID(t *testing.T) {
	pid, err := parsePID(map[string]string{"info": `{"sandboxID":"a","pid":4242,"runtimeSpec":{"process":{}}}`})
	require.NoError(t, err)
	assert.Equal(t, 4242, pid)

	// A wrong PID would send SIGKILL to another process.
	for _, bad := range []map[string]string{
		nil, {"info": "{"}, {"info": "{}"}, {"info": `{"pid":0}`}, {"info": `{"pid":1}`}, {"info": `{"pid":-7}`},
	} {
		_, err := parsePID(bad)
		assert.Error(t, err, bad)
	}
}
