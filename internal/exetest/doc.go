// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package exetest builds a program and runs it as a process, for tests that kill it, terminate it, and read its output. It tests
// no function of the program, and requires the go command.
//
// A [Program] is the main package in the working directory of the test. It is built once for all tests of the package, with the
// race detector if the tests use it. [Program.Start] starts a [Process], which is killed when the test ends:
//
//	var program exetest.Program
//
//	func TestMain(m *testing.M) { os.Exit(program.Main(m)) }
//
//	func TestHello(t *testing.T) {
//		dir := exetest.NewDir(t)
//		dir.Write("web.yaml", manifest)
//		p := program.Start(t, "-manifests", dir.Path)
//		p.AwaitLine(10*time.Second, "web", "Running")
//		p.Terminate(5*time.Second)
//	}
//
// It imports only the standard library. A Program may start processes for parallel tests. Methods that can fail the test must be
// called from the goroutine of the test.
package exetest
