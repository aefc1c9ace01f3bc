// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseLoadsReadsFormattedLoads(t *testing.T) {
	list := []Load{{CPU: 0.1}, {CPU: 0.1}, {Memory: 5}, {Memory: 5, Cache: 7}, {}}
	text := formatLoads(list)
	assert.Equal(t, "2 0.1 0 0,1 0 5 0,1 0 5 7,1 0 0 0", text)
	parsed, err := parseLoads(text)
	require.NoError(t, err)
	assert.Equal(t, list, parsed)
}

func TestParseLoadsRefusesInvalidText(t *testing.T) {
	for _, text := range []string{"", "1 2 3", "0 0 0 0", "1 0 0 0,", "x 0 0 0"} {
		_, err := parseLoads(text)
		assert.Error(t, err, "%q", text)
	}
}
