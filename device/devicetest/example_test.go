// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
)

// The suite for a plugin, here the plugin in memory.
func TestPluginPassesSuite(t *testing.T) {
	devicetest.TestPlugin(t, func(t *testing.T) devicetest.Subject {
		return devicetest.Subject{Connect: func(script *devicetest.Plugin, feed device.Feed) device.Plugin {
			if err := script.Attach(feed); err != nil {
				t.Fatal(err)
			}
			return script
		}}
	})
}

// A plugin whose device becomes unhealthy, and which hangs at last.
func ExampleNewPlugin() {
	p := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}, {ID: "gpu1", Healthy: true}}})
	var feed devicetest.Recorder // in a program, the feed of an Allocator
	fmt.Println(p.Attach(&feed), p.SetHealth("gpu1", false))
	last, updates := feed.Devices()
	fmt.Println(updates, last[1].ID, last[1].Healthy)

	ctx := context.Background()
	response, err := p.Allocate(ctx, []string{"gpu0"})
	fmt.Println(response.Env, err)
	p.SetFaults(devicetest.Faults{PreStart: func(ctx context.Context, _ []string, _ func() error) error { return devicetest.Hang(ctx) }})
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	fmt.Println(p.PreStart(ctx, []string{"gpu0"}))
	fmt.Printf("%q\n", p.Calls())

	fmt.Println(p.SetDevices(device.Device{}))
	p.Disconnect()
	fmt.Println(feed.Closed())
	// Output:
	// <nil> <nil>
	// 2 gpu1 false
	// map[DEVICES:gpu0] <nil>
	// context deadline exceeded
	// ["Allocate gpu0" "PreStart gpu0"]
	// a device has no ID
	// true
}
