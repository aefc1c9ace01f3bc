// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// PluginDir returns the directory of the lab's CNI plugins, for tests that run plugins without containerd. If a lab cannot
// run on this host, or a plugin is missing in the directory, it skips the test.
func PluginDir(t testing.TB, plugins ...string) string {
	t.Helper()
	return toolDir(t, plugins...)
}

// Tool returns the path of the program called name, such as crictl, which `make lab` builds. If a lab cannot run on this
// host, or the program is missing, it skips the test.
func Tool(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(toolDir(t, name), name)
}

// toolDir returns the directory of the programs that `make lab` builds. If one of names is missing, the test is skipped, or
// fails if a lab is required.
func toolDir(t testing.TB, names ...string) string {
	t.Helper()
	dir := filepath.Join(homeFor(t), "bin")
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			continue
		}
		reason := filepath.Join(dir, name) + " is missing: run `make lab` once as root"
		if os.Getenv(RequiredEnv) == "required" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	return dir
}
