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

// A container can leave a pipe where a file is expected. Nobody waits until it writes to it.
func TestResolveDoesNotWaitForPipes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "vars"), 0o644))
	p := podtest.Pod(t, "", "env: [{name: X, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: A}}}]")
	_, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], nil, map[string]string{"v": dir})
	assert.EqualError(t, err, "spec.containers[0].env[0].valueFrom: file vars of volume v: want a plain file of at most 1048576 bytes")
}
