// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/pluginregistry"
)

type optionsResponse = api.DevicePluginOptions

func newRequest(resource, endpoint string) *api.RegisterRequest {
	return &api.RegisterRequest{Version: api.Version, ResourceName: resource, Endpoint: endpoint}
}

// Invalid requests are refused at once. The first errors are the kubelet's, word by word.
func TestRegisterRefusesInvalidRequests(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.sock"), 0o700))
	newFake().serve(t, filepath.Join(dir, "p.sock"))
	require.NoError(t, os.Symlink("p.sock", filepath.Join(dir, "link.sock")))
	var requests sync.Map
	n := runHost(t, dir, plugin.Options{Hooks: plugin.Hooks{RegistrationRequested: func(name string) { requests.Store(name, true) }}})
	long := strings.Repeat("x", 64)
	for name, test := range map[string]struct {
		request *api.RegisterRequest
		want    string
	}{
		"version":     {&api.RegisterRequest{Version: "v1alpha1", ResourceName: resource, Endpoint: "p.sock"}, `requested API version "v1alpha1" is not supported by kubelet. Supported version is ["v1beta1"]`},
		"no version":  {&api.RegisterRequest{ResourceName: resource, Endpoint: "p.sock"}, `requested API version "" is not supported by kubelet. Supported version is ["v1beta1"]`},
		"no name":     {newRequest("", "p.sock"), `the ResourceName "" is invalid`},
		"no slash":    {newRequest("gpu", "p.sock"), `the ResourceName "gpu" is invalid`},
		"native":      {newRequest("kubernetes.io/gpu", "p.sock"), `the ResourceName "kubernetes.io/gpu" is invalid`},
		"sub native":  {newRequest("x.kubernetes.io/gpu", "p.sock"), `the ResourceName "x.kubernetes.io/gpu" is invalid`},
		"quota":       {newRequest("requests.vendor.example/gpu", "p.sock"), `the ResourceName "requests.vendor.example/gpu" is invalid`},
		"upper case":  {newRequest("Vendor.example/gpu", "p.sock"), `the ResourceName "Vendor.example/gpu" is invalid`},
		"two slashes": {newRequest("vendor.example/a/b", "p.sock"), `the ResourceName "vendor.example/a/b" is invalid`},
		"long name":   {newRequest("vendor.example/"+long, "p.sock"), `the ResourceName "vendor.example/` + long + `" is invalid`},
		"new line":    {newRequest("vendor.example/gpu\n", "p.sock"), `the ResourceName "vendor.example/gpu\n" is invalid`},

		"upwards":      {newRequest(resource, "../p.sock"), `register device plugin of resource vendor.example/gpu: endpoint "../p.sock" is no file name`},
		"parent":       {newRequest(resource, ".."), `endpoint ".." is no file name`},
		"no endpoint":  {newRequest(resource, ""), `endpoint is empty`},
		"absolute":     {newRequest(resource, filepath.Join(dir, "p.sock")), `endpoint "` + filepath.Join(dir, "p.sock") + `" is no file name`},
		"zero byte":    {newRequest(resource, "p\x00"), `is no file name`},
		"long":         {newRequest(resource, strings.Repeat("x", 256)), `has 256 bytes, more than 255`},
		"own socket":   {newRequest(resource, "kubelet.sock"), `is the socket of the registration server`},
		"regular file": {newRequest(resource, "file.sock"), "failed to dial device plugin: socket " + dir + "/file.sock: not a socket"},
		"directory":    {newRequest(resource, "dir.sock"), dir + "/dir.sock: not a socket"},
		"symlink":      {newRequest(resource, "link.sock"), dir + "/link.sock: not a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			begin := time.Now()
			err := n.request(ctx, test.request)
			assert.Less(t, time.Since(begin), 2*time.Second)
			assert.Equal(t, codes.Unknown, status.Code(err))
			if message := status.Convert(err).Message(); strings.HasSuffix(test.want, " is invalid") || strings.HasPrefix(test.want, "requested") {
				assert.Equal(t, test.want, message)
			} else {
				assert.Contains(t, message, test.want)
			}
			_, counted := requests.Load(test.request.GetResourceName())
			assert.True(t, counted, "the hook is called for each request")
		})
	}
	assert.Empty(t, n.connections)
}

// Errors after the connection are the response of Register.
func TestRegisterReturnsErrors(t *testing.T) {
	for name, test := range map[string]struct {
		refuse, options error
		want            string
	}{
		"receiver": {refuse: errRefused, want: errRefused.Error()},
		"options": {
			options: status.Error(codes.Internal, strings.Repeat("no driver ", 1000)),
			want:    "failed to get device plugin options: rpc error: code = Internal desc = no driver no driver",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := runHost(t, t.TempDir(), plugin.Options{Receiver: &receiver{refuse: test.refuse, connections: make(chan connection, 9)}})
			f := newFake()
			if test.options != nil {
				f.options = func(context.Context) (*optionsResponse, error) { return nil, test.options }
			}
			f.serve(t, n.path("p.sock"))
			err := n.register(t.Context(), "p.sock")
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 2000)
			assert.Empty(t, n.connections)
		})
	}
}

// A server that is not gRPC, and a dead socket, are retried for the limit of Register, and longer in the background.
func TestRegisterOfDeadSocket(t *testing.T) {
	t.Parallel()
	n := runHost(t, t.TempDir(), plugin.Options{})
	l := listen(t, n.path("p.sock"))
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.NoError(t, n.register(t.Context(), "p.sock"))
	require.NoError(t, os.Remove(n.path("p.sock")))
	newFake().serve(t, n.path("p.sock"))
	n.await(t).awaitDevices(t, "gpu0")
}

// A plugin that hangs in GetDevicePluginOptions delays no other plugin. Register fails at the deadline of the plugin or of the host.
func TestHungOptions(t *testing.T) {
	t.Parallel()
	n := runHost(t, t.TempDir(), plugin.Options{})
	f := newFake()
	f.options = func(ctx context.Context) (*optionsResponse, error) { return nil, devicetest.Hang(ctx) }
	f.serve(t, n.path("hung.sock"))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- n.request(ctx, newRequest("vendor.example/hung", "hung.sock")) }()

	newFake().serve(t, n.path("good.sock"))
	require.NoError(t, n.register(t.Context(), "good.sock"))
	n.await(t).awaitDevices(t, "gpu0")

	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	err := n.request(short, newRequest("vendor.example/other", "hung.sock"))
	require.ErrorContains(t, err, "code = DeadlineExceeded") // of the client, or in the response of the host, which has the same deadline

	err = <-failed
	require.Equal(t, codes.Unknown, status.Code(err))
	require.ErrorContains(t, err, "failed to get device plugin options: rpc error: code = DeadlineExceeded")
	assert.Empty(t, n.connections)
}

// registryServer is the registration service of a plugin in plugins_registry.
type registryServer struct {
	registration.UnimplementedRegistrationServer

	info     *registration.PluginInfo
	notified chan *registration.RegistrationStatus
}

func (r *registryServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r *registryServer) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	select {
	case r.notified <- s:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// A plugin registers by its socket in plugins_registry, and is disconnected when the socket is removed.
func TestHandlerConnectsPluginsOfRegistry(t *testing.T) {
	dir := t.TempDir()
	n := runHost(t, filepath.Join(dir, "d"), plugin.Options{})
	w, err := pluginregistry.New(pluginregistry.Options{
		Dir: filepath.Join(dir, "r"), Handlers: map[string]pluginregistry.Handler{registration.DevicePlugin: n.Handler()},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, w.Run(ctx)) })
	t.Cleanup(func() { cancel(); wg.Wait() })

	r := &registryServer{notified: make(chan *registration.RegistrationStatus, 9), info: &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: resource, SupportedVersions: []string{"v1alpha1", api.Version}, Endpoint: filepath.Join(dir, "e.sock"),
	}}
	f := newFake().serve(t, r.info.GetEndpoint())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "r"), 0o700))
	front := newFake().serveOn(t, listen(t, filepath.Join(dir, "r", "r.sock")), func(g *grpc.Server) { registration.RegisterRegistrationServer(g, r) })
	c := n.await(t)
	assert.Equal(t, [2]string{resource, r.info.GetEndpoint()}, [2]string{c.resource, c.socket})
	c.awaitDevices(t, "gpu0")
	assert.True(t, (<-r.notified).GetPluginRegistered())

	front.stop() // removes its socket
	c.awaitClosed(t)
	f.script.Disconnect()
	n.Handler().Deregister(t.Context(), registryPlugin(c.socket)) // not connected
}

func registryPlugin(endpoint string) pluginregistry.Plugin {
	return pluginregistry.Plugin{Type: registration.DevicePlugin, Name: resource, Endpoint: endpoint, Versions: []string{api.Version}}
}

func TestHandlerValidates(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	h := n.Handler()
	require.NoError(t, h.Validate(registryPlugin("/p.sock")))
	for want, p := range map[string]pluginregistry.Plugin{
		"manager version, v1beta1, is not among plugin supported versions [v1 v2]":              {Name: resource, Versions: []string{"v1", "v2"}},
		"manager version, v1beta1, is not among plugin supported versions []":                   {Name: resource},
		`invalid name of device plugin socket: the ResourceName "kubernetes.io/gpu" is invalid`: {Name: "kubernetes.io/gpu", Versions: []string{api.Version}},
	} {
		require.EqualError(t, h.Validate(p), want)
		require.EqualError(t, h.Register(t.Context(), p), want)
	}
}
