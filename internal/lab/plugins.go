// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// PluginDir returns the directory of the lab's CNI plugins, for tests that run them without containerd. The test is skipped if a
// lab cannot run, or if one of the plugins is missing.
func PluginDir(t testing.TB, plugins ...string) string {
	t.Helper()
	return toolDir(t, plugins...)
}

// Tool returns the path of a program that `make lab` has built, such as crictl. The test is skipped if a lab cannot run, or if
// the program is missing.
func Tool(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(toolDir(t, name), name)
}

// toolDir returns the directory of the programs, and skips or fails the test if one is missing.
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
