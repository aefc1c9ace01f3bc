// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// TestIntegrationExecContainerd runs commands in containers of containerd.
func TestIntegrationExecContainerd(t *testing.T) {
	rt, err := remote.Dial(lab.Start(t).Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rt.Close()) })
	testExec(t, execHost{runtime: rt})
}
