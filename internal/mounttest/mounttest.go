// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mounttest runs the tests of a package in a mount namespace of their own, so that they may mount and unmount, on
// any goroutine, and the host sees none of it: the namespace ends with the process, and what is still mounted with it. It
// takes root; without, tests that call [Need] are skipped and the others run as usual.
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

// Main runs the tests and ends the process, as [isolated.Run] does.
func Main(m *testing.M) { os.Exit(isolated.Run(isolated.Mounts, m.Run)) }

// Need skips a test that has no mount namespace of its own.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(isolated.Inside) == "" {
		t.Skip("mounts take root, and a mount namespace of their own")
	}
}

// DeadFUSE mounts a FUSE file system on a directory which nobody serves: whoever asks it for anything waits. It returns a
// function that lets all of them go with an error, which the end of the test calls too.
func DeadFUSE(t testing.TB, target string) (abort func()) {
	t.Helper()
	Need(t)
	return deadFUSE(t, target)
}

// LoopDevice returns a block device of so many bytes, which is empty, and gone at the end of the test. Where there are no loop devices
// the test is skipped.
func LoopDevice(t testing.TB, size int64) string {
	t.Helper()
	Need(t)
	return loopDevice(t, size)
}

// Blocked runs f, and returns when f has returned or waits in the kernel, for something like a file system that does not
// answer. The channel is closed when f has returned.
func Blocked(t testing.TB, f func()) (returned <-chan struct{}) {
	t.Helper()
	return blocked(t, f)
}

// RaceTime is how long a test lets a container race against an agent: 2 s, or what NODEAGENT_RACE says.
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
