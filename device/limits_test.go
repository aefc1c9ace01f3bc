// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

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
	assert.Equal(t, "Allocate failed due to response of Allocate takes 131088 bytes, more than 131072, which is unexpected", refusal.Message)
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
