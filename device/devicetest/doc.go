// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package devicetest is the test kit of package device: a device plugin in memory, a feed that records lists, and the conformance
// suite of device.Plugin. It opens no sockets.
//
//	p := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}}})
//	feed, err := allocator.Connect("vendor.example/gpu", "gpu.sock", p)
//	err = p.Attach(feed)          // lists gpu0
//	err = p.SetHealth("gpu0", false)
//
// # Faults
//
// [Faults] replaces calls of a [Plugin]: a func can delay the call, hang until the context ends, fail, or change the result.
//
// # Not modelled
//
// There is no registration, no connection and no socket: a Plugin is connected until Disconnect, and cannot come back. Responses
// have no size limit. Device nodes, mounts and CDI specifications are only names. A Plugin does not know which devices containers hold: it
// allocates any ID, also of an unhealthy device. Without a fault, calls take no time.
//
// # Suite
//
// [TestPlugin] checks an implementation of device.Plugin together with the lists that it sends to its feed. A failure quotes the violated
// sentence of the documentation of package device.
//
// # Concurrency
//
// All methods may be called concurrently. Feeds are called one list at a time, and must not call a method that changes their Plugin.
package devicetest
