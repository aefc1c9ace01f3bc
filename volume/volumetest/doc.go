// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumetest is the test kit of package volume: plugins in memory, fault injection, and the test suite for plugins. It
// creates no volumes on disk.
//
//	memory := &volumetest.MemoryPlugin{}
//	volumes, err := volume.New(volume.Options{Root: t.TempDir(), Plugins: map[string]volume.Plugin{volume.EmptyDir: memory}})
//
// # Fakes
//
// [MemoryPlugin] is a plugin that stores its volumes in a map, and records its calls. [MemoryStager] also stages and expands
// volumes with a claim, and detects calls in the wrong order. [Claims] stores claims and PVs. [FaultyPlugin] wraps a plugin, and
// injects errors, delays and hangs. [Signer] certifies keys of pods, and [TrustBundles] stores cluster trust bundles. All work
// with testing/synctest.
//
// # Suite
//
// [TestPlugin] checks that a plugin implements the documentation of volume.Plugin. SetUp must be idempotent. TearDown must remove
// absent and partial volumes, and never delete the files of a file system that is mounted inside.
//
// # Limits
//
// MemoryPlugin has no files and no sizes; MemoryStager has no block devices. Claims binds any claim without checks. A Signer
// certifies any key of any pod. A hang of FaultyPlugin ends with its context, as a plugin must.
package volumetest
