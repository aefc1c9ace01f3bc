// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// socketPlugin is a device plugin on sockets: one in the directory of each side. It prefers the devices with the highest IDs.
type socketPlugin struct {
	pluginapi.UnimplementedDevicePluginServer

	resource, endpoint string
	options            *pluginapi.DevicePluginOptions
	server             *grpc.Server
	serving            sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	devices    []*pluginapi.Device
	streams    []chan []*pluginapi.Device
	failing    bool     // Allocate and PreStartContainer fail
	optionsErr error    // of GetDevicePluginOptions
	starts     []string // IDs of each PreStartContainer call
}

// serve serves the plugin in each directory until the test ends or p.stop is called.
func (p *socketPlugin) serve(t testing.TB, dirs ...string) {
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	for _, dir := range dirs {
		l, err := net.Listen("unix", filepath.Join(dir, p.endpoint))
		require.NoError(t, err)
		server := p.server
		p.serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // the server may stop before it serves
				assert.NoError(t, err)
			}
		})
	}
}

// stop stops the server and removes the sockets.
func (p *socketPlugin) stop() {
	p.server.Stop()
	p.serving.Wait()
}

// register calls Register of a registration server.
func (p *socketPlugin) register(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.endpoint, ResourceName: p.resource, Options: p.options,
	})
	return err
}

// list replaces the devices of all streams.
func (p *socketPlugin) list(devices []*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	for _, lists := range p.streams {
		lists <- devices
	}
}

// endStreams ends the streams; the server continues.
func (p *socketPlugin) endStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lists := range p.streams {
		close(lists)
	}
	p.streams = nil
}

// setFailing lets Allocate and PreStartContainer fail, or succeed again.
func (p *socketPlugin) setFailing(failing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = failing
}

// takeStarts returns the calls of PreStartContainer since it was last called.
func (p *socketPlugin) takeStarts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	starts := p.starts
	p.starts = nil
	return starts
}

// GetDevicePluginOptions returns the options.
func (p *socketPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options, p.optionsErr
}

// ListAndWatch sends the devices and their changes.
func (p *socketPlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	lists := make(chan []*pluginapi.Device, 16)
	p.mu.Lock()
	lists <- p.devices
	p.streams = append(p.streams, lists)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams = slices.DeleteFunc(p.streams, func(c chan []*pluginapi.Device) bool { return c == lists })
	}()
	for {
		select {
		case devices, open := <-lists:
			if !open {
				return nil
			}
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetPreferredAllocation prefers the devices with the highest IDs.
func (p *socketPlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := preferHighest(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}

// Allocate returns a variable with the endpoint and the IDs, and the devices of a container.
func (p *socketPlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing {
		return nil, errors.New("out of order")
	}
	response := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := slices.Sorted(slices.Values(c.GetDevicesIds()))
		container := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{p.resource: p.endpoint + ":" + strings.Join(ids, ",")}}
		for _, id := range ids {
			path := "/dev/" + p.resource + "/" + id
			container.Devices = append(container.Devices, &pluginapi.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"})
			container.CdiDevices = append(container.CdiDevices, &pluginapi.CDIDevice{Name: p.resource + "=" + id})
		}
		container.Mounts = []*pluginapi.Mount{{ContainerPath: "/lib/" + p.resource, HostPath: "/opt/" + p.resource, ReadOnly: true}}
		response.ContainerResponses = append(response.ContainerResponses, container)
	}
	return response, nil
}

// PreStartContainer records the IDs.
func (p *socketPlugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts = append(p.starts, fmt.Sprint(slices.Sorted(slices.Values(r.GetDevicesIds()))))
	if p.failing {
		return nil, errors.New("out of order")
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// dialSocket returns a connection that waits until the socket is served. The caller closes it.
func dialSocket(t testing.TB, socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: socketTimeout,
		}))
	require.NoError(t, err)
	return conn
}

// preferHighest returns size IDs: those of mustInclude, and the highest available.
func preferHighest(available, mustInclude []string, size int) []string {
	ids := slices.Clone(mustInclude)
	for _, id := range slices.Backward(slices.Sorted(slices.Values(available))) {
		if len(ids) < size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
