// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package blockmap_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/blockdev"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/volume/internal/blockmap"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// attachedLoopDevices returns the loop devices that are attached to the file path.
func attachedLoopDevices(t *testing.T, path string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, f := range files {
		if data, _ := os.ReadFile(f); strings.TrimSpace(string(data)) == path {
			found = append(found, f)
		}
	}
	return found
}

// Map releases the loop device of the previous device.
func TestMapReplacesDevice(t *testing.T) {
	first, second := mounttest.LoopDevice(t, 1<<20), mounttest.LoopDevice(t, 1<<20)
	dir := t.TempDir()
	m := blockmap.Mapping{Bound: filepath.Join(dir, "map", "u1"), Link: filepath.Join(dir, "link")}
	t.Cleanup(func() { assert.NoError(t, m.Unmap(context.WithoutCancel(t.Context()))) })
	for range 2 {
		require.NoError(t, m.Map(t.Context(), first))
	}
	before := attachedLoopDevices(t, m.Bound)
	require.Len(t, before, 1)

	began := time.Now()
	require.NoError(t, m.Map(t.Context(), second))
	assert.Less(t, time.Since(began), 9*time.Second, "an unused device is unmapped without the wait of 10 s for busy devices")
	same, err := blockdev.Same(second, m.Bound)
	require.NoError(t, err)
	assert.True(t, same)
	target, err := os.Readlink(m.Link)
	require.NoError(t, err)
	assert.Equal(t, second, target)
	assert.Len(t, attachedLoopDevices(t, m.Bound), 1)

	require.NoError(t, m.Unmap(t.Context()))
	assert.Empty(t, attachedLoopDevices(t, m.Bound))
	for _, device := range []string{first, second} {
		assert.Empty(t, attachedLoopDevices(t, device), "no loop device holds %s open", device)
	}
}
