// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mounttest

import "testing"

func mountDeadFUSE(t testing.TB, _ string) (abort func()) {
	t.Helper()
	t.Skip("not Linux")
	return nil
}

func runUntilBlocked(t testing.TB, _ func()) <-chan struct{} {
	t.Helper()
	t.Skip("not Linux")
	return nil
}

func createLoopDevice(t testing.TB, _ int64) string {
	t.Skip("there are no loop devices on this system")
	return ""
}
