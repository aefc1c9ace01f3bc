// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// countInotify returns the number of inotify instances of this process.
func countInotify(t *testing.T) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if to, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// Followers with a shared Watcher use one inotify instance. Each receives the events of its own log, and the last one closes
// the instance.
func TestFollowersShareOneInotifyInstance(t *testing.T) {
	before := countInotify(t)
	var watcher logs.Watcher
	const followers = 150
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "0.log"), []byte("2026-01-01T00:00:00Z stdout F first\n"), 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	screens := make([]outputBuffer, followers)
	ends := make([]context.CancelFunc, followers)
	var wg sync.WaitGroup
	for i := range followers {
		var own context.Context
		own, ends[i] = context.WithCancel(ctx)
		wg.Go(func() {
			err := logs.Read(own, filepath.Join(dirs[i%3], "0.log"), &screens[i], nil, logs.ReadOptions{Follow: true, Watcher: &watcher})
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	line := func(text string) {
		for _, dir := range dirs {
			f, err := os.OpenFile(filepath.Join(dir, "0.log"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = fmt.Fprintf(f, "2026-01-01T00:00:00Z stdout F %s\n", text)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	for i := range followers {
		screens[i].awaitText(t, "first\n")
	}
	line("second")
	for i := range followers {
		screens[i].awaitText(t, "first\nsecond\n")
	}
	require.Equal(t, before+1, countInotify(t))
	for i := range followers / 2 {
		ends[i]() // this may be the follower that reads the inotify queue for all followers
	}
	line("third")
	for i := followers / 2; i < followers; i++ {
		screens[i].awaitText(t, "first\nsecond\nthird\n")
	}
	cancel()
	wg.Wait()
	require.Equal(t, before, countInotify(t))
}
