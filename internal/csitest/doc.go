// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package csitest has a fake CSI driver for tests, with identity service, node service and registration. It records each call,
// and calls can fail, hang or take effect twice. It mounts nothing.
//
//	d := csitest.Start(t, csitest.Options{Name: "csi.example", Registry: registry, Capabilities: csitest.AllCapabilities()})
//	...
//	d.Volumes() // "staged HANDLE PATH", "published HANDLE PATH"
//
// A [Driver] listens on two sockets: one for CSI, one for its registration with the kubelet. It tracks where volumes are staged
// and published, and refuses calls that violate the specification, such as publishing a volume that is not staged. A published
// volume is an empty directory, or an empty file if it is a block volume.
//
// [Options].BeforeCall is called before a call takes effect, and [Options].AfterCall after it; their errors become the response.
// [Driver.Stop] stops the driver as a crash does. [Driver.Restart] starts it again with the same volumes.
//
// # What it does not model
//
// There is no controller, and nothing is mounted; the driver in hack/csidriver mounts loop devices. Statistics are fixed: a
// volume has 1,000,000 bytes, and a tenth is used.
package csitest
