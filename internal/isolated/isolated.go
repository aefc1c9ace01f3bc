// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package isolated runs the tests of a package in a network and a mount namespace of their own, which take with them
// whatever a test leaves behind: interfaces, rules, mounts. Files stay where they are. It is for TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(isolated.Run(m.Run)) }
//
// The network has a loopback interface, which is down, and nothing else.
package isolated

// Inside is the environment variable that marks processes in the namespaces.
const Inside = "NODEAGENT_ISOLATED"
