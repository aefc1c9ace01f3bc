// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cnitest is the test kit of package cni: scripted CNI plugins that record how they are called. They do nothing to
// any network.
//
// # Model
//
// A plugin is the test binary itself, started again under the name of the plugin, so that nothing is to be installed:
//
//	func TestMain(m *testing.M) {
//		cnitest.Main() // returns at once unless this process is a plugin
//		os.Exit(m.Run())
//	}
//
//	func TestSetup(t *testing.T) {
//		plugins := cnitest.New(t, "bridge", "portmap")
//		plugins.Script("portmap", "ADD", cnitest.Fails(11, "later"), cnitest.Passes())
//		pods := open(cni.Options{PluginDirs: []string{plugins.Dir}})
//		...
//		calls := plugins.Calls()
//	}
//
// The answers of a script are taken in turn, and the last one stays. Without a script ADD returns the result of the plugin
// before it, or one address that is derived from the container ID; VERSION lists all versions; all else succeeds.
//
// An answer may be a result, an error, garbage, more output than anybody wants, a crash, or none at all: a plugin that
// hangs, with a child that has its output open, in its process group or out of it. Such processes end by themselves when
// the directory of the plugins is removed, which happens at the end of the test. On systems other than Linux, [New] skips
// the test.
//
// # What it does not model
//
// Interfaces, addresses that are in use, delegation to IPAM plugins, and the checks of configuration that a real plugin
// makes.
//
// # Concurrency
//
// Plugins may run at the same time; their calls are recorded one after the other, in the order in which they were started.
package cnitest
