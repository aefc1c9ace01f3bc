// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Importing package probe does not link an HTTP client, which package httpprobe needs.
func TestPackageImportsNoHTTP(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	list := strings.Fields(string(out))
	assert.Contains(t, list, "net")
	assert.NotContains(t, list, "net/http")
}
