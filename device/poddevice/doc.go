// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package poddevice gives the containers of pods the devices that they limit. It converts pods for a [device.Allocator], and implements
// lifecycle.Devices. It calls no plugin itself: package device/plugin connects plugins to the allocator.
//
//	devices, err := poddevice.New(poddevice.Options{Allocator: device.Options{Record: "/var/lib/agent/devices"}})
//	host, err := plugin.New(plugin.Options{Dir: "/var/lib/kubelet/device-plugins", Receiver: devices.Allocator()})
//	reconciler, err := lifecycle.New(runtime, lifecycle.Options{Devices: devices})
//	go devices.Run(ctx)
//	go host.Run(ctx)
//
// All methods may be called from any goroutine. A pod that cannot have its devices fails with the reason and message of the kubelet. A pod
// whose plugin is missing after a restart waits.
//
// Test kit: package device/devicetest has a plugin in memory.
package poddevice
