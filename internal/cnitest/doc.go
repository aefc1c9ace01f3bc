// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cnitest is the test kit of package cni: scripted CNI plugins that record their calls. They configure no network.
//
// A plugin is the test binary itself, started under the name of the plugin, so nothing needs to be installed:
//
//	func TestMain(m *testing.M) {
//		cnitest.Main() // returns at once unless this process is a plugin
//		os.Exit(m.Run())
//	}
//
//	func TestSetup(t *testing.T) {
//		plugins := cnitest.New(t, "bridge", "portmap")
//		plugins.Script("portmap", "ADD", cnitest.Fail(11, "later"), cnitest.Succeed())
//		pods := open(cni.Options{PluginDirs: []string{plugins.Dir}})
//		...
//		calls := plugins.Calls()
//	}
//
// The answers of a script are used in order, and the last one repeats. By default, ADD returns the result of the previous plugin,
// or one address derived from the container ID. VERSION lists all versions, and all other commands succeed.
//
// An answer may be a result, an error, invalid output, too much output, a crash, or a hang, with a child process that keeps the
// output open. These processes exit when the directory of the plugins is removed at the end of the test. On systems other than
// Linux, [New] skips the test.
//
// It does not model interfaces, addresses in use, delegation to IPAM plugins, and the configuration checks of real plugins.
// Plugins may run concurrently; their calls are recorded in the order of their starts.
package cnitest
