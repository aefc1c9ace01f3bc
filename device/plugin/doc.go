// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin connects device plugins to a [Receiver], such as a device.Allocator. It serves the registration API v1beta1 on
// kubelet.sock, follows the device lists of registered plugins, and calls the plugins. It chooses no devices, and its [Host]
// stores nothing.
//
//	host, err := plugin.New(plugin.Options{Dir: "/var/lib/kubelet/device-plugins", Receiver: allocator, Sockets: allocator.Sockets()})
//	go host.Run(ctx)
//
// # Model
//
// A plugin registers with the Register call, or by a socket in [Options].Registry. The host connects to the socket
// of the plugin, calls GetDevicePluginOptions, and passes a device.Plugin to the Receiver. Then ListAndWatch delivers device lists to
// the feed until the stream ends. A stream that has ended is not opened again: the plugin must register again.
//
// Register returns when the plugin is connected, with the error if it is not. Some plugins serve only after Register has returned.
// Therefore Register returns without an error after 2 s if the socket has not accepted a connection by then. The host continues to
// connect for up to 10 s after the registration, and logs the result.
//
// [ReadCheckpoint] reads the allocations of a kubelet, and [ExportTo] writes them for one, for a node that changes over with its pods running.
//
// # Hostile plugins
//
// Messages, lists, IDs, paths and texts are limited. Paths of mounts and devices must be absolute; the host cleans them. Symbolic
// links to sockets are not followed. Connections, plugins, registrations and the concurrent calls of a plugin are limited.
// Back-pressure stops a plugin that sends lists too fast. A rejected list is logged at most once a minute per plugin, and the
// previous list stays valid.
//
// # Concurrency
//
// Run is called once and owns all goroutines. The Receiver and each feed are called without a lock; a feed is called by one goroutine.
//
// # Errors
//
// Errors of Register and of the calls of a plugin are the kubelet's, word by word. If the deadline of a call has passed, the
// error wraps [context.DeadlineExceeded].
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/cm/devicemanager/plugin/v1beta1 of Kubernetes 1.37.1. DIFFERENCES.md has all differences; the main ones:
//
//   - Sockets in the directory stay. Those in [Options].Sockets are connected to once at the start.
//   - A second registration of a socket for its resource replaces the first; the kubelet refuses it.
//   - Register succeeds after 2 s for a socket that accepts no connection yet; the kubelet waits for 10 s and fails.
//   - An endpoint must be a file name; the kubelet follows "..".
//   - A response of Allocate with several containers, invalid values, or contradictory duplicates is an error.
//
// Test kit: package devicetest has a plugin in memory and the suite for a device.Plugin.
package plugin
