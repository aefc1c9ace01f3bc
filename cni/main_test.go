// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/internal/cnitest"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

func TestMain(m *testing.M) {
	cnitest.Main()
	runAgent()
	runtime.GOMAXPROCS(1) // the race detector needs one processor with synctest (golang/go#78156)
	os.Exit(isolated.Run(isolated.Mounts|isolated.Network, m.Run))
}

// needsRoot skips the test if this process cannot create network namespaces.
func needsRoot(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux for network namespaces")
	}
}

// list returns the JSON of a configuration list with this name, CNI version and plugins.
func list(name, version string, plugins ...string) string {
	data := fmt.Sprintf(`{"name":%q,"cniVersion":%q,"plugins":[`, name, version)
	for i, p := range plugins {
		if i > 0 {
			data += ","
		}
		data += p
	}
	return data + "]}"
}

// plugin returns the JSON of a plugin that requests these capabilities.
func plugin(name string, capabilities ...string) string {
	wanted := map[string]bool{}
	for _, c := range capabilities {
		wanted[c] = true
	}
	data, _ := json.Marshal(map[string]any{"type": name, "capabilities": wanted})
	return string(data)
}

// network returns the parsed network of a configuration list with this name, CNI version and plugins.
func network(t testing.TB, name, version string, plugins ...string) *cni.Network {
	t.Helper()
	n, err := cni.ParseNetwork([]byte(list(name, version, plugins...)))
	require.NoError(t, err)
	return n
}

// node is a node with scripted plugins and the directories of an agent.
type node struct {
	t       testing.TB
	plugins *cnitest.Plugins
	dir     string
	opts    cni.Options
}

// newNode returns a node with a network "net" of CNI version 1.1.0, which has the scripted plugins a, b and c.
func newNode(t testing.TB) *node {
	needsRoot(t)
	dir := t.TempDir()
	n := &node{t: t, plugins: cnitest.New(t, "a", "b", "c"), dir: filepath.Join(dir, "records")}
	n.opts = cni.Options{
		ConfDir: filepath.Join(dir, "conf"), NetnsDir: filepath.Join(dir, "netns"), PluginDirs: []string{n.plugins.Dir},
		Timeouts: cni.Timeouts{Status: 10 * time.Second},
	}
	n.write("10-net.conflist", list("net", "1.1.0", plugin("a"), plugin("b"), plugin("c")))
	t.Cleanup(func() { unmountAll(t, n.opts.NetnsDir) })
	return n
}

// write writes a configuration file with this name.
func (n *node) write(name, content string) {
	n.t.Helper()
	path := filepath.Join(n.opts.ConfDir, name)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(n.t, os.WriteFile(path, []byte(content), 0o600))
}

// open returns the Pods of a new agent, which is closed when the test ends.
func (n *node) open() *cni.Pods {
	n.t.Helper()
	p, err := cni.Open(n.dir, n.opts)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = p.Close() })
	return p
}

// files returns the names of the files of all sandboxes, by kind: record, result and netns.
func (n *node) files() map[string][]string {
	n.t.Helper()
	found := map[string][]string{}
	for what, dir := range map[string]string{
		"record": filepath.Join(n.dir, "sandboxes"), "result": filepath.Join(n.dir, "cache", "results"), "netns": n.opts.NetnsDir,
	} {
		entries, err := os.ReadDir(dir)
		if !os.IsNotExist(err) {
			require.NoError(n.t, err)
		}
		for _, e := range entries {
			if e.Name() != ".lock" {
				found[what] = append(found[what], e.Name())
			}
		}
	}
	return maps.Clone(found)
}

// requireNoFiles fails the test if a file of any sandbox remains.
func (n *node) requireNoFiles() {
	n.t.Helper()
	require.Empty(n.t, n.files())
}

func pod(id string) cni.Pod {
	return cni.Pod{SandboxID: id, Namespace: "default", Name: "pod-" + id, UID: "uid-" + id}
}

// pluginsOf returns the plugins in data, the JSON of a configuration list.
func pluginsOf(t testing.TB, data []byte) []map[string]any {
	t.Helper()
	var list struct{ Plugins []map[string]any }
	require.NoError(t, json.Unmarshal(data, &list))
	return list.Plugins
}

// objectOf returns the JSON object in data. It returns an empty object if data is empty.
func objectOf(t testing.TB, data []byte) map[string]any {
	t.Helper()
	object := map[string]any{}
	if len(data) > 0 {
		require.NoError(t, json.Unmarshal(data, &object))
	}
	return object
}
