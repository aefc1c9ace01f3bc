// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/cnitest"
)

// The restarted agent tears down the sandboxes of the previous one with their recorded configuration, without a namespace after a
// reboot.
func TestIntegrationRetainTearsDownOrphans(t *testing.T) {
	n := newNode(t)
	p := n.open()
	for _, id := range []string{"1", "2", "3"} {
		_, err := p.Setup(t.Context(), pod(id))
		require.NoError(t, err)
	}
	require.NoError(t, p.Retain(t.Context(), nil), "Retain keeps the sandboxes that this agent has set up")
	require.Len(t, n.files()["record"], 3)
	require.NoError(t, p.Close())

	n.write("10-net.conflist", list("other", "1.0.0", plugin("c")))
	unmountAll(t, n.opts.NetnsDir)
	require.NoError(t, os.RemoveAll(n.opts.NetnsDir))
	p = n.open()
	n.plugins.ClearCalls()
	require.NoError(t, p.Retain(t.Context(), []string{"2", "none"}))
	require.Equal(t, map[string][]string{"record": {"2.json"}, "result": {"net-2-eth0"}}, n.files())
	for _, c := range n.plugins.Calls() {
		require.Contains(t, []string{"1", "3"}, c.ContainerID)
		require.Empty(t, c.Netns)
		require.Equal(t, `"net"`, c.Field("name"))
		require.NotEmpty(t, c.Field("prevResult"))
	}
	require.Len(t, n.plugins.Calls("DEL"), 6)
	require.ErrorIs(t, p.Check(t.Context(), "2"), fs.ErrNotExist, "its namespace")
	s, err := p.Inspect("2")
	require.NoError(t, err)
	require.Empty(t, s.Netns)
	require.NoError(t, p.Retain(t.Context(), nil))
	n.requireNoFiles()
}

// A lost or damaged record is replaced by libcni's cache.
func TestIntegrationLostRecordsReplacedByCache(t *testing.T) {
	n := newNode(t)
	p := n.open()
	for _, id := range []string{"1", "2", "3"} {
		_, err := p.Setup(t.Context(), pod(id))
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	p = n.open()
	record := func(id string) string { return filepath.Join(n.dir, "sandboxes", id+".json") }
	require.NoError(t, os.Remove(record("1")))
	require.NoError(t, os.WriteFile(record("2"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(record("3"), nil, 0o600))
	require.NoError(t, os.Remove(filepath.Join(n.dir, "cache", "results", "net-3-eth0")))
	n.plugins.ClearCalls()
	err := p.Retain(t.Context(), nil)
	require.ErrorContains(t, err, "sandbox 2: damaged record "+record("2"))
	require.ErrorContains(t, err, "sandbox 3: damaged record "+record("3"))
	require.NotContains(t, err.Error(), "sandbox 1")
	require.Len(t, n.plugins.Calls("DEL"), 6, "the attachments of sandbox 3 are unknown")
	n.requireNoFiles()
	require.NoError(t, p.Retain(t.Context(), nil))
}

// Plugins that collect garbage get all attachments that may exist.
func TestIntegrationGCGetsAllAttachments(t *testing.T) {
	n := newNode(t)
	p := n.open()
	for _, id := range []string{"1", "2", "3"} {
		_, err := p.Setup(t.Context(), pod(id))
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	p = n.open()
	_, err := p.Setup(t.Context(), pod("4"))
	require.NoError(t, err)
	n.plugins.Script("c", "DEL", cnitest.Fail(11, "later"), cnitest.Succeed())
	n.plugins.ClearCalls()
	require.ErrorContains(t, p.Retain(t.Context(), []string{"3"}), "later")
	calls := n.plugins.Calls("GC")
	require.Len(t, calls, 3)
	valid := calls[0].Field("cni.dev/valid-attachments")
	require.Equal(t, 3, strings.Count(valid, "containerID"), "the attachment whose DEL failed stays valid: %s", valid)
	for _, id := range []string{"3", "4"} {
		require.Contains(t, valid, `{"containerID":"`+id+`","ifname":"eth0"}`)
	}
}

// Set-ups wait while plugins collect garbage, which would remove a new attachment.
func TestIntegrationSetupWaitsForGC(t *testing.T) {
	n := newNode(t)
	n.opts.Timeouts.GC = time.Minute
	n.plugins.Script("a", "GC", cnitest.Hang(cnitest.NoChild))
	p := n.open()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Retain(ctx, nil) }()
	for len(n.plugins.Calls("GC")) == 0 {
		time.Sleep(time.Millisecond)
	}
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err := p.Setup(short, pod("1"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, p.Retain(t.Context(), nil), "a second Retain does not wait for GC")
	require.NoError(t, p.Ready(t.Context()))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	_, err = p.Setup(t.Context(), pod("1"))
	require.NoError(t, err)
	require.NoError(t, p.Teardown(t.Context(), "1"))
	n.requireNoFiles()
}
