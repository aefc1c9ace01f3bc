// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/plugin"
)

const (
	timeout  = time.Minute // limits the wait for each event
	tick     = 2 * time.Millisecond
	resource = "vendor.example/gpu"
)

var _ plugin.Receiver = (*device.Allocator)(nil)

// fakePlugin is the gRPC server of a device plugin. It makes the calls of script, unless a func replaces the call.
type fakePlugin struct {
	api.UnimplementedDevicePluginServer

	script    *devicetest.Plugin
	options   func(context.Context) (*api.DevicePluginOptions, error)
	list      func(grpc.ServerStreamingServer[api.ListAndWatchResponse]) error
	preferred func(*api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error)
	allocate  func(*api.AllocateRequest) (*api.AllocateResponse, error)
	desc      *grpc.ServiceDesc // replaces that of the service; nil: the service
	stop      func()            // stops the server and removes its socket
}

// newFake returns a plugin with the healthy device gpu0.
func newFake() *fakePlugin {
	return &fakePlugin{script: devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}}})}
}

// listen listens on a unix socket.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	require.LessOrEqual(t, len(path), 107, "the name of the test is too long for a socket: %s", path)
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve serves the plugin at path until the test ends or f.stop is called.
func (f *fakePlugin) serve(t *testing.T, path string) *fakePlugin {
	t.Helper()
	return f.serveOn(t, listen(t, path))
}

func (f *fakePlugin) serveOn(t *testing.T, l net.Listener, services ...func(*grpc.Server)) *fakePlugin {
	g := grpc.NewServer()
	if f.desc == nil {
		f.desc = &api.DevicePlugin_ServiceDesc
	}
	g.RegisterService(f.desc, f)
	for _, register := range services {
		register(g)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // the server may stop before it serves
			assert.NoError(t, err)
		}
	})
	f.stop = sync.OnceFunc(func() { g.Stop(); wg.Wait() })
	t.Cleanup(f.stop)
	return f
}

func (f *fakePlugin) GetDevicePluginOptions(ctx context.Context, _ *api.Empty) (*api.DevicePluginOptions, error) {
	if f.options != nil {
		return f.options(ctx)
	}
	o := f.script.Options()
	return &api.DevicePluginOptions{PreStartRequired: o.PreStart, GetPreferredAllocationAvailable: o.Preferred}, nil
}

func (f *fakePlugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if f.list != nil {
		return f.list(stream)
	}
	feed := &streamFeed{changed: make(chan struct{}, 1), closed: make(chan struct{})}
	if err := f.script.Attach(feed); err != nil {
		return err
	}
	for {
		select {
		case <-feed.changed:
			if err := stream.Send(&api.ListAndWatchResponse{Devices: feed.list()}); err != nil {
				return err
			}
		case <-feed.closed:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fakePlugin) GetPreferredAllocation(ctx context.Context, request *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	if f.preferred != nil {
		return f.preferred(request)
	}
	c := request.GetContainerRequests()[0]
	ids, err := f.script.Preferred(ctx, c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, err
}

func (f *fakePlugin) Allocate(ctx context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	if f.allocate != nil {
		return f.allocate(request)
	}
	response, err := f.script.Allocate(ctx, request.GetContainerRequests()[0].GetDevicesIds())
	if err != nil {
		return nil, err
	}
	out := &api.ContainerAllocateResponse{Envs: response.Env, Annotations: response.Annotations}
	for _, m := range response.Mounts {
		out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, d := range response.Devices {
		out.Devices = append(out.Devices, &api.DeviceSpec{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	for _, name := range response.CDIDevices {
		out.CdiDevices = append(out.CdiDevices, &api.CDIDevice{Name: name})
	}
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{out}}, nil
}

func (f *fakePlugin) PreStartContainer(ctx context.Context, request *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, f.script.PreStart(ctx, request.GetDevicesIds())
}

// streamFeed is the feed of a script whose lists go to a stream. Only the newest list is kept.
type streamFeed struct {
	changed, closed chan struct{}

	mu     sync.Mutex
	newest []device.Device
}

func (f *streamFeed) Update(devices []device.Device) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = devices
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

func (f *streamFeed) Close() { close(f.closed) }

func (f *streamFeed) list() (list []*api.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.newest {
		health, topology := api.Unhealthy, (*api.TopologyInfo)(nil)
		if d.Healthy {
			health = api.Healthy
		}
		for node := range d.Nodes.Nodes() {
			if topology == nil {
				topology = &api.TopologyInfo{}
			}
			topology.Nodes = append(topology.Nodes, &api.NUMANode{ID: int64(node)})
		}
		list = append(list, &api.Device{ID: d.ID, Health: health, Topology: topology})
	}
	return list
}

// connection is a plugin that the receiver got.
type connection struct {
	resource, socket string
	plugin           device.Plugin
	feed             *devicetest.Recorder
}

// receiver passes each connected plugin to a channel.
type receiver struct {
	refuse      error
	feed        device.Feed // for all plugins; nil: a Recorder for each
	connections chan connection
}

func newReceiver() *receiver { return &receiver{connections: make(chan connection, 100)} }

func (r *receiver) Connect(resource, socket string, p device.Plugin) (device.Feed, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	c := connection{resource, socket, p, &devicetest.Recorder{}}
	r.connections <- c
	if r.feed != nil {
		return r.feed, nil
	}
	return c.feed, nil
}

// await returns the next connected plugin.
func (r *receiver) await(t *testing.T) connection {
	t.Helper()
	select {
	case c := <-r.connections:
		return c
	case <-time.After(timeout):
		require.Fail(t, "no plugin is connected")
		return connection{}
	}
}

// awaitDevices waits until the last list of the connection has these IDs.
func (c connection) awaitDevices(t *testing.T, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, _ := c.feed.Devices()
		ids := []string{}
		for _, d := range list {
			ids = append(ids, d.ID)
		}
		return assert.ObjectsAreEqual(want, ids)
	}, timeout, tick, "%q", want)
}

// awaitClosed waits until the feed of the connection is closed.
func (c connection) awaitClosed(t *testing.T) {
	t.Helper()
	require.Eventually(t, c.feed.Closed, timeout, tick, "the feed is not closed")
}

// node is a running host with its directory and receiver.
type node struct {
	*plugin.Host
	*receiver // nil: the receiver has another type
	dir       string
	stop      func() // stops Run and waits until it has returned
}

// runHost runs a host in dir, until the test ends or n.stop is called.
func runHost(t *testing.T, dir string, opts plugin.Options) *node {
	t.Helper()
	r, _ := opts.Receiver.(*receiver)
	if opts.Receiver == nil {
		r = newReceiver()
		opts.Receiver = r
	}
	opts.Dir = dir
	h, err := plugin.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, h.Run(ctx)) })
	n := &node{Host: h, receiver: r, dir: dir, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(n.stop)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// register calls Register for the plugin at endpoint.
func (n *node) register(ctx context.Context, endpoint string) error {
	return n.request(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource})
}

func (n *node) request(ctx context.Context, request *api.RegisterRequest) error {
	conn, err := grpc.NewClient("unix://"+n.path("kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = api.NewRegistrationClient(conn).Register(ctx, request, grpc.WaitForReady(true))
	return err
}

// logRecorder counts the log records with each message, and keeps the attributes of the last.
type logRecorder struct {
	slog.Handler
	mu       sync.Mutex
	messages map[string]int
	attrs    map[string]map[string]string // by message and key
}

func newLogRecorder() *logRecorder {
	return &logRecorder{Handler: slog.DiscardHandler, messages: map[string]int{}, attrs: map[string]map[string]string{}}
}

func (l *logRecorder) Enabled(context.Context, slog.Level) bool { return true }
func (l *logRecorder) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *logRecorder) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[r.Message]++
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	l.attrs[r.Message] = attrs
	return nil
}

// attr returns an attribute of the last record with this message.
func (l *logRecorder) attr(message, key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attrs[message][key]
}

func (l *logRecorder) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages[message]
}
