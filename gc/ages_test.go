// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
)

// A damaged file of ages is reported, all images count as first detected now, and the pass writes a valid file.
func TestDamagedAgesFileIsReplaced(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "truncated": `{"version":1,"images":{"sha256:a":{"firstDe`, "another version": `{"version":7}`, "a list": `[]`,
		"unparseable time": `{"version":1,"images":{"sha256:a":{"firstDetected":"yesterday"}}}`,
		"too large":        `{"version":1,"images":{}}` + strings.Repeat(" ", 16<<20),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ages.json")
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			synctest.Test(t, func(t *testing.T) {
				var told []error
				store := gctest.NewStore(1000)
				store.AddImage("a", gctest.Layer{Name: "a", Size: 100})
				g, err := gc.NewImages(store, store, gc.ImageOptions{
					Ages: path, Disk: store.Disk, Hooks: gc.ImageHooks{Error: func(err error) { told = append(told, err) }},
				})
				require.NoError(t, err)
				_, err = g.Reclaim(t.Context(), 50)
				require.ErrorContains(t, err, "1 younger than the minimum age")
				require.Len(t, told, 1)
				require.ErrorContains(t, told[0], "ages of images: ")
				require.ErrorContains(t, told[0], "all begin anew")
				kept, err := os.ReadFile(path)
				require.NoError(t, err)
				require.True(t, json.Valid(kept))
			})
		})
	}
}

// A symbolic link in place of the file is not followed, neither for reading nor for writing.
func TestAgesFileSymlinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	secret, path := filepath.Join(dir, "secret"), filepath.Join(dir, "ages.json")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, path))
	var told []error
	store := gctest.NewStore(1000)
	g, err := gc.NewImages(store, store, gc.ImageOptions{
		Ages: path, Disk: store.Disk, Hooks: gc.ImageHooks{Error: func(err error) { told = append(told, err) }},
	})
	require.NoError(t, err)
	require.NoError(t, g.Detect(t.Context()))
	require.Len(t, told, 2, "one error for reading and one for writing")
	content, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(content))
}

// Ages in the future, as written by a wrong clock, count as now: they keep the image for the minimum age, not forever.
func TestFutureAgesCountAsNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ages.json")
	synctest.Test(t, func(t *testing.T) {
		future := time.Now().Add(1000 * time.Hour).Format(time.RFC3339)
		content := fmt.Sprintf(`{"version":1,"images":{"sha256:a":{"firstDetected":%q,"lastUsed":%q}}}`, future, future)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		store := gctest.NewStore(1000)
		store.AddImage("a", gctest.Layer{Name: "a", Size: 100})
		g, err := gc.NewImages(store, store, gc.ImageOptions{Ages: path, Disk: store.Disk})
		require.NoError(t, err)
		_, err = g.Reclaim(t.Context(), 50)
		require.Error(t, err)
		time.Sleep(2 * time.Minute)
		freed, err := g.Reclaim(t.Context(), 50)
		require.NoError(t, err)
		require.EqualValues(t, 100, freed)
	})
}

// FuzzAges collects with any content in the file of ages. Used images stay, and a valid file is written.
func FuzzAges(f *testing.F) {
	f.Add([]byte(`{"version":1,"images":{"sha256:used":{"firstDetected":"2000-01-01T00:00:00Z","lastUsed":"1990-01-01T00:00:00Z"}}}`))
	f.Add([]byte(`{"version":1,"images":{"":{},"sha256:a":null}}`))
	f.Add([]byte("{"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "ages.json")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		store := gctest.NewStore(1000)
		store.AddImage("used", gctest.Layer{Name: "used", Size: 100})
		store.AddImage("new", gctest.Layer{Name: "new", Size: 100})
		store.AddContainer("c", "sha256:used")
		g, err := gc.NewImages(store, store, gc.ImageOptions{Ages: path, Disk: store.Disk, Settle: -1})
		require.NoError(t, err)
		_, _ = g.Reclaim(context.Background(), gc.ReclaimAll)
		require.True(t, store.HasImage("sha256:used"))
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, json.Valid(kept))
	})
}
