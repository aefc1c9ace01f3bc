// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package csitest has a CSI driver for tests: its node and identity services and its registration, each call of which is recorded and
// can be made to fail, to hang or to answer twice. It mounts nothing.
//
// # The fake
//
// A [Driver] listens on two sockets, as a driver and its registrar do. It keeps account of what is staged and published where, and
// refuses what the specification does not allow: to publish what is not staged, to unstage what is published, another use of the same
// path. What is published is an empty directory, and of a block volume an empty file:
//
//	d := csitest.Start(t, csitest.Options{Name: "csi.example", Registry: registry, Capabilities: csitest.All()})
//	...
//	d.Volumes() // "staged HANDLE PATH", "published HANDLE PATH"
//
// [Options].Fault is called before a call takes effect and [Options].Done after: what they return is the answer. [Driver.Stop] ends the
// driver as a crash does, and [Driver.Restart] starts it again with what it knew.
//
// # What it does not model
//
// There is no controller, and nothing is mounted: examples of real mounts are the driver of loop devices in hack/csidriver. Stats are
// made up: a volume has 1,000,000 bytes, of which a tenth is used.
package csitest
