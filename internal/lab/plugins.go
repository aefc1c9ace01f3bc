// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// PluginDir returns the directory of the lab's CNI plugins, for tests that run them without a containerd. The test is
// skipped where a lab cannot run, or where one of these plugins is missing.
func PluginDir(t testing.TB, plugins ...string) string {
	t.Helper()
	dir := filepath.Join(homeFor(t), "bin")
	for _, name := range plugins {
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
