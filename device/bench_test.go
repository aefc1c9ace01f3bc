// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
)

// makePods returns pods with one container each, which limits one device.
func makePods(count int) (pods []device.Pod) {
	for i := range count {
		pods = append(pods, device.Pod{UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: "default", Name: fmt.Sprint("pod-", i), Containers: []device.Container{
			{Name: "main", Limits: map[string]int{"example.com/gpu": 1}},
		}})
	}
	return pods
}

// makeDevices returns healthy devices on two NUMA nodes.
func makeDevices(count int) (list []device.Device) {
	for i := range count {
		list = append(list, device.Device{ID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i), Healthy: true, Nodes: 1 << (i % 2)})
	}
	return list
}

// connectPlugin connects a plugin in memory.
func connectPlugin(b testing.TB, a *device.Allocator, devices int) *devicetest.Plugin {
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: makeDevices(devices), Calls: device.PluginOptions{PreStart: true}})
	feed, err := a.Connect("example.com/gpu", "/gpu.sock", plugin)
	require.NoError(b, err)
	require.NoError(b, plugin.Attach(feed))
	return plugin
}

// A restart with 250 pods that hold devices: the record is read, each pod is reserved again, and no plugin is asked.
func BenchmarkRestartWith250Pods(b *testing.B) {
	opts := device.Options{Record: filepath.Join(b.TempDir(), "record")}
	a, err := device.New(opts)
	require.NoError(b, err)
	connectPlugin(b, a, 256)
	pods := makePods(250)
	for _, pod := range pods {
		require.NoError(b, a.Reserve(b.Context(), pod))
	}
	var plugin *devicetest.Plugin
	for b.Loop() {
		a, err := device.New(opts)
		require.NoError(b, err)
		plugin = connectPlugin(b, a, 256)
		for _, pod := range pods {
			require.NoError(b, a.Reserve(b.Context(), pod))
		}
	}
	require.Empty(b, plugin.Calls(), "no plugin is asked")
}

// The admission of a pod with a device, without the time of the plugin: the choice, and the record on disk.
func BenchmarkReserve(b *testing.B) {
	for _, record := range []string{"", filepath.Join(b.TempDir(), "record")} {
		b.Run(fmt.Sprintf("record=%v", record != ""), func(b *testing.B) {
			a, err := device.New(device.Options{Record: record})
			require.NoError(b, err)
			connectPlugin(b, a, 1000)
			pods := makePods(101)
			for _, pod := range pods[:100] {
				require.NoError(b, a.Reserve(b.Context(), pod))
			}
			for b.Loop() {
				require.NoError(b, a.Reserve(b.Context(), pods[100]))
				require.NoError(b, a.Release(pods[100].UID))
			}
		})
	}
}

// The memory of 1,000 devices, in bytes.
func BenchmarkMemoryOf1000Devices(b *testing.B) {
	for b.Loop() {
		a, err := device.New(device.Options{})
		require.NoError(b, err)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		plugin := connectPlugin(b, a, 100_000/2)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/50, "bytes/1000devices")
		runtime.KeepAlive(plugin)
		runtime.KeepAlive(a)
	}
}
