// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumetest is the test kit of package volume: a plugin in memory, faults for any plugin, and the suite that every
// plugin passes. It makes no volumes on disk.
//
// # The fake
//
// [Memory] is a plugin whose volumes are entries of a table. It records what it was asked:
//
//	memory := &volumetest.Memory{}
//	volumes, err := volume.New(volume.Options{Root: t.TempDir(), Plugins: map[string]volume.Plugin{volume.EmptyDir: memory}})
//
// [Shared] is one with volumes of claims, which it stages and lets grow, and notes what came when it must not. [Claims] has claims and
// the volumes that they are bound to.
//
// [Faulty] puts failures, waits and hangs before the calls of a plugin. Both are for tests in virtual time, too.
//
// [Signer] and [TrustBundles] are what projected volumes have from a cluster: certificates of pods by an authority in memory, and
// cluster trust bundles.
//
// # The suite
//
// [TestPlugin] checks a plugin against the documentation of volume.Plugin: a set-up is idempotent, a teardown leaves nothing,
// of a volume that is absent or there in part as well, and never removes what is mounted in it.
//
// # What it does not model
//
// Memory has neither files nor sizes. A Signer certifies any key of any pod, and TrustBundles have whatever they are given. A hang of Faulty ends with the context, as that of any plugin has to.
// Memory has neither files nor sizes, Shared no block devices. Claims binds what it is told, and checks nothing. A hang of Faulty ends with the context, as that of any plugin has to.
package volumetest
