// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
)

// write creates files in dir, from content by relative path, and their parent directories.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// formatConfig returns the networks of c with their files, and the problems, as text. Paths are relative to dir.
func formatConfig(dir string, c cni.Config) string {
	var lines []string
	for _, n := range c.Networks {
		lines = append(lines, n.Name+" from "+filepath.Base(n.File))
	}
	for _, p := range c.Problems {
		lines = append(lines, strings.ReplaceAll(p.Error(), dir+"/", ""))
	}
	return strings.Join(lines, "\n")
}

func TestDirLoad(t *testing.T) {
	single := func(name string) string { return fmt.Sprintf(`{"name":%q,"cniVersion":"0.4.0","type":"a"}`, name) }
	good := list("l", "1.0.0", plugin("a"))
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":              {nil, ""},
		"lexical order":        {map[string]string{"10-b.conflist": good, "05-a.conf": single("s"), "2-c.json": single("j")}, "s from 05-a.conf\nl from 10-b.conflist\nj from 2-c.json"},
		"other names":          {map[string]string{"a.conf.bak": good, "b": good, "c.yaml": good, "d.conflist/e.conflist": good}, ""},
		"invalid file":         {map[string]string{"1.conflist": `{"name":`, "2.conflist": good}, "l from 2.conflist\n1.conflist: error parsing configuration list: unexpected end of JSON input"},
		"list in a .conf file": {map[string]string{"1.conf": good, "2.conf": single("s")}, "s from 2.conf\n1.conf: error parsing configuration: missing 'type'"},
		"name in two files":    {map[string]string{"1.conf": single("s"), "2.conf": single("s")}, "s from 1.conf\n2.conf: name: \"s\" is that of 1.conf"},
		"empty file":           {map[string]string{"1.conflist": ""}, "1.conflist: error parsing configuration list: unexpected end of JSON input"},
		"too long":             {map[string]string{"1.conflist": strings.Repeat(" ", 1<<20+1)}, "1.conflist: 1048577 bytes exceed the limit of 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, test.files)
			assert.Equal(t, test.want, formatConfig(dir, cni.NewDir(dir).Load()))
		})
	}
}

// Plugins of a list may be in separate files. The network contains all of them, and so does its record.
func TestLoadAddsPluginsOfSeparateFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"1.conflist": `{"name":"n","cniVersion":"1.1.0","keep":1,"plugins":[{"type":"a","mtu":1}]}`,
		"n/2.conf":   `{"type":"c"}`, "n/1.conf": `{"type":"b"}`, "n/3.json": `{"type":"d"}`,
		"2.conflist": `{"name":"m","cniVersion":"1.1.0"}`, "m/1.conf": `{"type":"a"}`,
		"3.conflist": `{"name":"o","cniVersion":"1.1.0","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`, "o/1.conf": `{"type":"b"}`,
		"4.conflist": `{"name":"p","cniVersion":"1.1.0"}`, "p/1.conf": `{}`,
	})
	c := cni.NewDir(dir).Load()
	require.Equal(t, "n from 1.conflist\nm from 2.conflist\no from 3.conflist\n4.conflist: failed to parse plugin config 0: error parsing configuration: missing 'type'", formatConfig(dir, c))
	require.JSONEq(t, `{"name":"n","cniVersion":"1.1.0","keep":1,"loadOnlyInlinedPlugins":true,"plugins":[{"type":"a","mtu":1},{"type":"b"},{"type":"c"}]}`,
		string(c.Networks[0].Config()))
	require.Len(t, c.Networks[1].Plugins, 1)
	require.Len(t, c.Networks[2].Plugins, 1)
}

func TestLoadReportsSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"real": list("n", "1.0.0", plugin("a"))})
	require.NoError(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "1.conflist")))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "2.conflist")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "3.conflist")))
	require.Equal(t, "n from 1.conflist\n3.conflist: not a regular file", formatConfig(dir, cni.NewDir(dir).Load()))

	file := filepath.Join(dir, "real")
	require.Equal(t, file+": readdirent: not a directory", formatConfig(dir+"-", cni.NewDir(file).Load()))
}

// A removed and recreated directory is followed. The times are virtual.
func TestDirRunFollowsRecreatedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	old := time.Now().Add(-time.Hour)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex // guards seen
		var seen []string
		ended := make(chan error)
		go func() {
			ended <- cni.NewDir(dir).Run(ctx, func(c cni.Config) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, formatConfig(dir, c))
			})
		}()
		look := func() string {
			time.Sleep(2 * cni.DefaultPeriod)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			last := strings.Join(seen, "; ")
			seen = nil
			return last
		}
		require.Empty(t, look(), "a missing directory is reported once")
		write(t, dir, map[string]string{"1.conflist": list("n", "1.0.0", plugin("a"))})
		require.Equal(t, "n from 1.conflist", look())
		require.Empty(t, look(), "an unchanged directory is not reported")
		require.NoError(t, os.RemoveAll(dir))
		require.Empty(t, look())
		write(t, dir, map[string]string{"2.conflist": list("n", "1.0.0", plugin("a"))})
		require.Equal(t, "n from 2.conflist", look())
		write(t, dir, map[string]string{"2.conflist": list("n", "1.0.0", plugin("b"))})
		require.Equal(t, "n from 2.conflist", look(), "a changed plugin is reported")
		write(t, dir, map[string]string{"2.conflist": "{"})
		require.NoError(t, os.Chtimes(filepath.Join(dir, "2.conflist"), old, old))
		require.Contains(t, look(), "2.conflist: ")
		cancel()
		require.NoError(t, <-ended)
	})
}
