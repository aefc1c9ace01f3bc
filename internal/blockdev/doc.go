// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package blockdev finds block devices, keeps them open without a process, and makes, checks and grows the file systems on them with the
// node's own programs. It mounts nothing and knows no pods.
//
// # Model
//
// A device whose name a container was given must not be taken away for another one that gets the same name. [Hold] sees to that with a
// loop device on it, as the kubelet does, so that it outlives the agent, and either can undo what the other did:
//
//	device, err := blockdev.Resolve("/dev/disk/by-id/x")
//	err = blockdev.Hold(ctx, device)
//	...
//	err = blockdev.Release(ctx, device)
//
// [Format] makes a file system where there is none, and checks one that is there. [Grow] lets it fill its device.
//
// What belongs here: what is done with a block device of this node. Which volume it is of does not.
//
// # Concurrency
//
// All functions may be called from any number of goroutines, for one device from one at a time.
//
// # Errors
//
// An error names the device, and has the end of what a program has printed. On systems other than Linux it is errors.ErrUnsupported.
//
// Test kit: none; internal/mounttest has loop devices.
package blockdev
