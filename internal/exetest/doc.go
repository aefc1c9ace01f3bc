// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package exetest runs the program of a directory as a process of its own, for tests that kill it, ask it to end, and
// read what it prints. It tests no function of the program, and it needs the go command.
//
// # Model
//
// A [Program] is the main package of the working directory, which is that of the test. It is built once for all tests
// of the package, with the race detector if they have it themselves. [Program.Start] starts a [Process], and ends it
// with the test:
//
//	var program exetest.Program
//
//	func TestMain(m *testing.M) { os.Exit(program.Main(m)) }
//
//	func TestHello(t *testing.T) {
//		dir := exetest.NewDir(t)
//		dir.Write("web.yaml", manifest)
//		p := program.Start(t, "-manifests", dir.Path)
//		p.Says(10*time.Second, "web", "Running")
//		p.Terminate(5*time.Second)
//	}
//
// The standard library and package testing are all it imports.
//
// # Concurrency
//
// A Program may start processes for tests that run in parallel. The methods of a Process and of a Dir that can fail
// the test are called from the goroutine of the test.
package exetest
