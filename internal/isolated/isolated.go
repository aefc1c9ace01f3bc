// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package isolated runs the tests of a package in their own namespaces, so that the kernel removes the mounts, interfaces and
// rules that a test leaves behind. Files are not removed. It is for TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(isolated.Run(isolated.Mounts|isolated.Network, m.Run)) }
package isolated

import (
	"os"
	"strings"
)

// Inside is the environment variable that marks processes in the namespaces.
const Inside = "NODEAGENT_ISOLATED"

// Kind is a set of namespace kinds.
type Kind int

// The kinds of namespaces.
const (
	Mounts  Kind = 1 << iota // a mount namespace in which all mounts are private
	Network                  // a network namespace with nothing but a loopback interface that is down
)

// Run executes the test program again in new namespaces of the given kinds, calls run in that process, and returns its exit
// code. Without root or namespaces, or in a fuzzer, which must start its own workers, it calls run in this process.
func Run(kinds Kind, run func() int) int {
	if os.Geteuid() != 0 || os.Getenv(Inside) != "" || isFuzzing(os.Args[1:]) {
		return run()
	}
	if code, ok := runIsolated(kinds); ok {
		return code
	}
	return run()
}

// isFuzzing reports whether args start a test program as a fuzzer or as a worker of a fuzzer.
func isFuzzing(args []string) bool {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-test.fuzz=") || arg == "-test.fuzzworker" {
			return true
		}
	}
	return false
}
