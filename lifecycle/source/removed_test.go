// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// A manifest that is removed and recreated leaves the set in between, so that its pods are restarted even if its content is
// equal. A file that is replaced by a rename or written in place stays in the set. The kubelet does the same.
func TestRunDropsPodsOfManifestRemovedForAMoment(t *testing.T) {
	content := []byte(manifest("a", "1"))
	write := func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, content, 0o644)) }
	move := func(t *testing.T, from, to string) { require.NoError(t, os.Rename(from, to)) }
	for name, c := range map[string]struct {
		change  func(t *testing.T, path, elsewhere string)
		restart bool
	}{
		"removed and recreated": {func(t *testing.T, path, _ string) {
			require.NoError(t, os.Remove(path))
			write(t, path)
		}, true},
		"moved out of the directory and back": {func(t *testing.T, path, elsewhere string) {
			move(t, path, elsewhere)
			move(t, elsewhere, path)
		}, true},
		"saved by an editor that keeps a backup": {func(t *testing.T, path, _ string) {
			move(t, path, path+"~")
			write(t, path)
			require.NoError(t, os.Remove(path+"~"))
		}, true},
		"replaced from another directory": {func(t *testing.T, path, elsewhere string) {
			write(t, elsewhere)
			move(t, elsewhere, path)
		}, false},
		"replaced by a hidden file": {func(t *testing.T, path, _ string) {
			hidden := filepath.Join(filepath.Dir(path), ".a.swp")
			write(t, hidden)
			move(t, hidden, path)
		}, false},
		"written in place": {func(t *testing.T, path, _ string) { write(t, path) }, false},
		"mode changed":     {func(t *testing.T, path, _ string) { require.NoError(t, os.Chmod(path, 0o600)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "a.yaml")
			path := filepath.Join(dir, "a.yaml")
			write(t, path)
			before := time.Now().Add(-time.Hour)
			require.NoError(t, os.Chtimes(path, before, before)) // the first scan reads an old file
			var mu sync.Mutex
			var seen []string
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			d := source.NewDir(dir, source.DirOptions{StableFor: 20 * time.Millisecond, Period: time.Minute})
			wg.Go(func() {
				assert.NoError(t, d.Run(ctx, func(u source.Update) {
					mu.Lock()
					defer mu.Unlock()
					assert.Empty(t, u.Errs)
					if text := images(u); len(seen) == 0 || seen[len(seen)-1] != text {
						seen = append(seen, text)
					}
				}))
			})
			awaitUpdates := func(want ...string) {
				t.Helper()
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return slices.Equal(want, seen)
				}, time.Minute, 5*time.Millisecond, "%q", want)
			}

			awaitUpdates("a=1")
			c.change(t, path, elsewhere)
			want := []string{"a=1"}
			if c.restart {
				want = append(want, "", "a=1")
			}
			awaitUpdates(want...)
			// The next change proves that no update of the previous change is pending.
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(manifest("b", "1")), 0o644))
			awaitUpdates(append(want, "a=1 b=1")...)
		})
	}
}
