// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/plugin"
)

// printer prints the plugins that connect. In a program, a device.Allocator is the receiver.
type printer struct{}

func (printer) Connect(resource, socket string, p device.Plugin) (device.Feed, error) {
	fmt.Println(resource, filepath.Base(socket), p.Options())
	return &devicetest.Recorder{}, nil
}

// A host that runs until its context ends. No plugin registers.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	host, err := plugin.New(plugin.Options{
		Dir:      filepath.Join(dir, "device-plugins"),
		Registry: filepath.Join(dir, "plugins_registry"),
		Receiver: printer{},
		Sockets:  []device.Socket{{Resource: "vendor.example/gpu", Path: "gpu.sock"}}, // of the plugins before the restart
		Hooks:    plugin.Hooks{RegistrationRequested: func(resource string) { fmt.Println("registration of", resource) }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(host.Run(ctx), host.Check())
	// Output:
	// <nil> <nil>
}

// The allocations of a kubelet that ran on this node before.
func ExampleReadCheckpoint() {
	previous, err := plugin.ReadCheckpoint(filepath.Join("testdata", plugin.CheckpointName))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range previous.Claims {
		fmt.Println(c.PodUID, c.Container, c.Resource, len(c.Devices), c.Response != nil)
	}
	// Output:
	// uid-a init vendor.example/gpu 1 false
	// uid-a main vendor.example/gpu 1 true
	// uid-b main vendor.example/nic 2 true
	// uid-c c vendor.example/empty 1 false
}

// The allocations of an agent, for the kubelet that takes the node back.
func ExampleExportTo() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, plugin.CheckpointName)
	allocator, err := device.New(device.Options{Export: plugin.ExportTo(path)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := allocator.Connect("vendor.example/gpu", "", devicetest.NewPlugin(devicetest.Options{})); err != nil {
		fmt.Println(err)
		return
	}
	content, err := os.ReadFile(path)
	fmt.Println(string(content), err)
	// Output:
	// {"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"vendor.example/gpu":[]}},"Checksum":2038283796} <nil>
}
