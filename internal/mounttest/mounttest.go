// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mounttest runs the tests of a package in their own mount namespace, so that they can mount and unmount without
// affecting the host. All mounts end with the test process. It requires root; without it, tests that call [Need] are skipped.
//
//	func TestMain(m *testing.M) { mounttest.Main(m) }
//
//	func TestTmpfs(t *testing.T) {
//		mounttest.Need(t)
//		...
//	}
package mounttest

import (
	"os"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/internal/isolated"
)

// Main runs the tests of m in a new mount namespace, and exits with their exit code. See [isolated.Run]. Call Main in
// TestMain.
func Main(m *testing.M) { os.Exit(isolated.Run(isolated.Mounts, m.Run)) }

// Need skips the test unless it runs in the mount namespace that [Main] creates.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(isolated.Inside) == "" {
		t.Skip("mounts take root, and a mount namespace of their own")
	}
}

// DeadFUSE mounts a FUSE file system without a server on the directory target, so that every access hangs. abort makes all
// pending accesses fail; it is called at the end of the test at the latest.
func DeadFUSE(t testing.TB, target string) (abort func()) {
	t.Helper()
	Need(t)
	return mountDeadFUSE(t, target)
}

// LoopDevice returns the path of an empty block device of size bytes. The device is removed when the test ends. If the host
// has no loop devices, LoopDevice skips the test.
func LoopDevice(t testing.TB, size int64) string {
	t.Helper()
	Need(t)
	return createLoopDevice(t, size)
}

// Blocked runs f in a goroutine. It returns when f has returned or hangs in the kernel, for example on a file system
// without a server. The returned channel is closed when f has returned.
func Blocked(t testing.TB, f func()) (returned <-chan struct{}) {
	t.Helper()
	return runUntilBlocked(t, f)
}

// RaceTime returns how long a test provokes races between an agent and a container that changes files. It is the value of
// the environment variable NODEAGENT_RACE, or 2 s by default.
func RaceTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("NODEAGENT_RACE")
	if text == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal("NODEAGENT_RACE: ", err)
	}
	return d
}
