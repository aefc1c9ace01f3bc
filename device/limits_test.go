// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
)

// The devices of all plugins together are limited. A plugin that sends too many keeps its last list.
func TestListsOfAllPluginsAreLimited(t *testing.T) {
	a, err := device.New(device.Options{})
	require.NoError(t, err)
	list := makeDevices(device.MaxDevices)
	for i := range list {
		list[i].ID = fmt.Sprintf("%d-%s", i, strings.Repeat("x", 500))
	}
	first, err := a.Connect("example.com/a", "", devicetest.NewPlugin(devicetest.Options{}))
	require.NoError(t, err)
	require.NoError(t, first.Update(list))
	second, err := a.Connect("example.com/b", "", devicetest.NewPlugin(devicetest.Options{}))
	require.NoError(t, err)
	require.NoError(t, second.Update(list[:1]))
	require.ErrorContains(t, second.Update(list), "update devices of resource example.com/b: the devices of all plugins take ")
	assert.Equal(t, 1, a.Resources()[1].Capacity)
	require.NoError(t, first.Update(list[:1]))
	require.NoError(t, second.Update(list))
}

// A plugin that answers too much refuses its own pod, and does not fill the record.
func TestResponsesAreLimited(t *testing.T) {
	a, err := device.New(device.Options{})
	require.NoError(t, err)
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: makeDevices(1), Respond: func([]string) device.Response {
		return device.Response{Env: map[string]string{"A": strings.Repeat("x", 128<<10)}}
	}})
	feed, err := a.Connect("example.com/gpu", "", plugin)
	require.NoError(t, err)
	require.NoError(t, plugin.Attach(feed))
	var refusal *device.Refusal
	require.ErrorAs(t, a.Reserve(t.Context(), makePods(1)[0]), &refusal)
	assert.Equal(t, "Allocate failed due to response of Allocate of resource example.com/gpu takes 131088 bytes, more than 131072, which is unexpected", refusal.Message)
}

// Pods that come before the containers of the runtime are read are named when they are.
func TestEarlyPodsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, named := make(chan struct{}), make(chan []string, 1)
		a, err := device.New(device.Options{
			Running: func(context.Context) ([]device.RunningContainer, error) { <-read; return nil, nil },
			Hooks:   device.Hooks{PodsChanged: func(uids []string) { named <- uids }},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		pods := makePods(3)
		for range 2 {
			for _, pod := range pods[:2] {
				require.ErrorContains(t, a.Reserve(ctx, pod), "the containers of the runtime are not read yet")
			}
		}
		pods[2].Containers[0].Limits = nil
		require.NoError(t, a.Reserve(ctx, pods[2]), "a pod without devices does not wait")
		close(read)
		assert.Equal(t, []string{pods[0].UID, pods[1].UID}, <-named)
		cancel()
		require.NoError(t, <-done)
	})
}

// Values in the error for contradicting responses are shortened: the error becomes the status of the pod.
func TestConflictErrorIsShort(t *testing.T) {
	a, err := device.New(device.Options{})
	require.NoError(t, err)
	pod := makePods(1)[0]
	for _, name := range []string{"example.com/a", "example.com/b"} {
		pod.Containers[0].Limits[name] = 1
		plugin := devicetest.NewPlugin(devicetest.Options{Devices: makeDevices(1), Respond: func([]string) device.Response {
			return device.Response{Env: map[string]string{"A": name + strings.Repeat("x", 100<<10)}}
		}})
		feed, err := a.Connect(name, "", plugin)
		require.NoError(t, err)
		require.NoError(t, plugin.Attach(feed))
	}
	delete(pod.Containers[0].Limits, "example.com/gpu")
	err = a.Reserve(t.Context(), pod)
	require.ErrorContains(t, err, "the plugins of resources example.com/a and example.com/b contradict each other: environment variable A is example.com/axx")
	assert.Less(t, len(err.Error()), 500)
}

// Resources that lost their plugin make room for others, unless a pod holds them. No pod runs without one of them.
func TestForgottenResourcesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := device.New(device.Options{IsForeign: func(string) bool { return true }})
		require.NoError(t, err)
		held := connectPlugin(t, a, 1)
		pods := makePods(2)
		require.NoError(t, a.Reserve(t.Context(), pods[0]))
		held.Disconnect()
		connect := func(name string) (device.Feed, error) {
			return a.Connect(name, "", devicetest.NewPlugin(devicetest.Options{}))
		}
		var feeds []device.Feed
		for i := range 1023 {
			feed, err := connect(fmt.Sprint("example.com/", i))
			require.NoError(t, err)
			feeds = append(feeds, feed)
		}
		const want = `connect device plugin for resource "example.com/new": there are 1024 resources, and no more are allowed`
		_, err = connect("example.com/new")
		require.EqualError(t, err, want)
		for _, feed := range feeds {
			feed.Close()
		}
		time.Sleep(device.StopGrace + 30*time.Second) // the Node does not have their removal yet
		_, err = connect("example.com/new")
		require.EqualError(t, err, want)
		time.Sleep(time.Minute)
		_, err = connect("example.com/new")
		require.NoError(t, err)
		assert.Len(t, a.Resources(), 2)
		assert.True(t, a.Manages("example.com/0"))
		assert.Len(t, a.Claims(), 1)

		feeds[0].Close()
		require.ErrorContains(t, feeds[0].Update(makeDevices(1)), "update devices of resource example.com/0: the plugin is not connected any more")
		pods[1].Containers[0].Limits = map[string]int{"example.com/0": 1}
		require.ErrorContains(t, a.Reserve(t.Context(), pods[1]), "cannot allocate unregistered device example.com/0")
		_, err = connect("example.com/0")
		require.NoError(t, err)
	})
}

// The number of names is limited for the life of the process, because the allocator remembers them.
func TestResourceNamesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := device.New(device.Options{})
		require.NoError(t, err)
		plugin := devicetest.NewPlugin(devicetest.Options{})
		for i := range 1 << 14 {
			feed, err := a.Connect(fmt.Sprint("example.com/", i), "", plugin)
			require.NoError(t, err)
			feed.Close()
			if i%1024 == 1023 {
				time.Sleep(device.StopGrace + 2*time.Minute)
			}
		}
		_, err = a.Connect("example.com/new", "", plugin)
		require.ErrorContains(t, err, `resource "example.com/new": there were 16384 resources, and no more are allowed until a restart`)
		_, err = a.Connect("example.com/0", "", plugin)
		require.NoError(t, err, "a known name")
	})
}
