// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A plugin registers over the real API; a pod gets a device; the device becomes unhealthy; the program restarts.
func TestDevicesOfARealPlugin(t *testing.T) {
	dir, err := os.MkdirTemp("", "dev")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var pods podFlags
	require.NoError(t, pods.Set("trainer=example.com/gpu:1"))
	out := &lines{}
	stop := start(t, out, dir, pods)
	p := startPlugin(t, dir, "gpu.sock")
	p.register(t, dir, "gpu.sock")
	out.await(t, "resource example.com/gpu has 2 devices, 2 of them healthy")
	out.await(t, "pod trainer has gpu0 of example.com/gpu, Healthy")

	connection, err := grpc.NewClient("unix:"+filepath.Join(dir, "r.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	list, err := podresourcesv1.NewPodResourcesListerClient(connection).List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetPodResources(), 1)
	assert.Equal(t, []string{"gpu0"}, list.GetPodResources()[0].GetContainers()[0].GetDevices()[0].GetDeviceIds())

	p.lists <- []*api.Device{{ID: "gpu0", Health: api.Unhealthy}, {ID: "gpu1", Health: api.Healthy}}
	out.await(t, "pod trainer has gpu0 of example.com/gpu, Unhealthy")
	stop()

	out = &lines{}
	defer start(t, out, dir, pods)() // the plugin does not register again: its socket is in the record
	out.await(t, "pod trainer has gpu0 of example.com/gpu, Unhealthy")
	assert.Equal(t, 1, p.allocations, "the restart asked no plugin")
}

func TestPodFlagNamesItsForm(t *testing.T) {
	var pods podFlags
	for _, text := range []string{"", "a", "a=b", "a=b:0", "=b:1", "a=b:x"} {
		assert.EqualError(t, pods.Set(text), "want NAME=RESOURCE:COUNT", text)
	}
}

// start runs the program until the returned function is called.
func start(t *testing.T, out *lines, dir string, pods podFlags) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, out, dir, filepath.Join(dir, "r.sock"), pods) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// lines collects printed lines.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) await(t *testing.T, line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return strings.Contains(l.text.String(), line+"\n")
	}, 20*time.Second, 10*time.Millisecond, line)
}

// gpuPlugin is a device plugin with two devices.
type gpuPlugin struct {
	api.UnimplementedDevicePluginServer
	lists       chan []*api.Device
	last        []*api.Device
	allocations int
}

func startPlugin(t *testing.T, dir, socket string) *gpuPlugin {
	p := &gpuPlugin{lists: make(chan []*api.Device, 1), last: []*api.Device{{ID: "gpu0", Health: api.Healthy}, {ID: "gpu1", Health: api.Healthy}}}
	require.NoError(t, os.MkdirAll(dir, 0o750))
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	require.NoError(t, err)
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return p
}

// register registers the plugin when the program serves its socket.
func (p *gpuPlugin) register(t *testing.T, dir, socket string) {
	connection, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(t.Context(), &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: "example.com/gpu",
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
}

func (p *gpuPlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *gpuPlugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		if err := stream.Send(&api.ListAndWatchResponse{Devices: p.last}); err != nil {
			return err
		}
		select {
		case p.last = <-p.lists:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *gpuPlugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.allocations++
	return &api.AllocateResponse{ContainerResponses: make([]*api.ContainerAllocateResponse, len(request.GetContainerRequests()))}, nil
}
