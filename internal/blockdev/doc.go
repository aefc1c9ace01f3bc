// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package blockdev resolves block devices, keeps them open without a process, and creates, checks and grows their file systems
// with programs of the node. It does not mount them.
//
// # Model
//
// While a container uses a device, its name must not be given to another device. [Hold] prevents that by attaching a loop device,
// as the kubelet does. The loop device outlives the agent, and agent and kubelet can release each other's devices:
//
//	device, err := blockdev.Resolve("/dev/disk/by-id/x")
//	err = blockdev.Hold(ctx, device)
//	...
//	err = blockdev.Release(ctx, device)
//
// [Format] creates a file system on an empty device, and checks an existing one. [Grow] extends it to the size of its device.
//
// # Concurrency
//
// All functions are safe for concurrent use, with at most one call per device at a time.
//
// # Errors
//
// An error names the device and contains the end of the program output. On systems other than Linux it is errors.ErrUnsupported.
//
// Test kit: none; internal/mounttest has loop devices.
package blockdev
