// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/podtest"
)

// A container can replace an environment file by a named pipe, which must not block.
func TestResolveFailsForNamedPipe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "vars"), 0o644))
	p := podtest.Pod(t, "", "env: [{name: X, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: A}}}]")
	_, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], nil, map[string]string{"v": dir})
	assert.EqualError(t, err, "spec.containers[0].env[0].valueFrom: file vars of volume v: must be a regular file of at most 1048576 bytes")
}
