// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
)

// unifiedCgroup creates a cgroup in the v2 hierarchy, which a hybrid host has too, and returns its directory.
func unifiedCgroup(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for _, m := range parseMounts(string(mountinfo)) {
		if !m.v2 {
			continue
		}
		dir := filepath.Join(m.dir, fmt.Sprintf("nodeagent-test-watch-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip("cannot create a cgroup of the test: ", err)
		}
		t.Cleanup(func() { assert.NoError(t, unix.Rmdir(dir)) })
		return dir
	}
	t.Skip("needs cgroup v2")
	return ""
}

// If pressure is disabled, the kernel drops the trigger and reports it as fired again and again.
func TestIntegrationPressureDisabledEndsWatch(t *testing.T) {
	dir := unifiedCgroup(t)
	file := filepath.Join(dir, "cgroup.pressure")
	if _, err := os.Stat(file); err != nil {
		t.Skip("needs pressure (PSI) that can be switched off: ", err)
	}
	h, err := openHierarchy(dir, nil)
	require.NoError(t, err)
	defer h.close()
	trigger := cgroups.Trigger{File: "memory.pressure", Stall: 2 * time.Second, Window: 2 * time.Second}
	wait, err := (&treeV2{h: h}).openWatch("", []cgroups.Trigger{trigger})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("0"), 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fired := 0
	err = wrapError("watch", "a", wait(ctx, func(cgroups.Trigger) {
		fired++
		cancel()
	}))
	require.ErrorIs(t, err, unix.EIO)
	require.EqualError(t, err, "watch cgroup /a: memory.pressure: poll: the kernel has dropped the trigger: input/output error")
	require.Zero(t, fired)
}
