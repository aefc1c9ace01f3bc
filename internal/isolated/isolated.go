// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package isolated runs the tests of a package in namespaces of their own, which take with them whatever a test leaves behind:
// mounts, interfaces, rules. Files stay where they are. It is for TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(isolated.Run(isolated.Mounts|isolated.Network, m.Run)) }
package isolated

import (
	"os"
	"strings"
)

// Inside is the environment variable that marks processes in the namespaces.
const Inside = "NODEAGENT_ISOLATED"

// Kind is which namespaces there are.
type Kind int

// The kinds of namespaces.
const (
	Mounts  Kind = 1 << iota // in which every mount is private
	Network                  // with a loopback interface, which is down, and nothing else
)

// Run starts this program again in namespaces of its own, and returns its exit code. There, and where the user is not root,
// who alone can make namespaces, it returns what run does. So it does for a fuzzer, which has to own its workers.
func Run(k Kind, run func() int) int {
	if os.Geteuid() != 0 || os.Getenv(Inside) != "" || fuzzing(os.Args[1:]) {
		return run()
	}
	if code, ok := again(k); ok {
		return code
	}
	return run()
}

// fuzzing reports whether a test binary is to look for new inputs, or is a worker that does.
func fuzzing(args []string) bool {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-test.fuzz=") || arg == "-test.fuzzworker" {
			return true
		}
	}
	return false
}
