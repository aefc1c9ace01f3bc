// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// A log collector finds the log of a running container through a link that names pod, namespace, container and ID. The link
// is removed with the container, and a dangling link of an earlier container when the agent starts.
func TestLogLinksForCollectors(t *testing.T) {
	f, links := newFiles(t), t.TempDir()
	dead := filepath.Join(links, "old_default_main-0123456789abcdef.log")
	require.NoError(t, os.Symlink(filepath.Join(f.logs, "default_old_1", "main", "0.log"), dead))
	f.manifests.Write("web.yaml", podYAML("web", "echo collected; "+sleeper))
	a := f.start(map[string]any{"containerLogsDir": links})
	f.awaitLog("web-n1", "main", "collected")
	pattern := filepath.Join(links, "web-n1_default_main-*.log")
	exetest.Eventually(t, timeout, func() error {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) != 1 {
			return fmt.Errorf("links %q: %w", found, err)
		}
		text, err := os.ReadFile(found[0])
		require.NoError(t, err)
		require.Contains(t, string(text), "collected\n")
		if _, err := os.Lstat(dead); err == nil {
			return fmt.Errorf("the dangling link %s is not removed", dead)
		}
		return nil
	})
	f.manifests.Remove("web.yaml")
	exetest.Eventually(t, timeout, func() error {
		entries, err := os.ReadDir(links)
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("remaining links: %v", entries)
		}
		return err
	})
	a.Terminate(timeout)
}
