// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/plugin"
)

// The client of a plugin behind gRPC passes the suite for a device.Plugin.
func TestClientPassesSuite(t *testing.T) {
	devicetest.TestPlugin(t, func(t *testing.T) devicetest.Subject {
		return devicetest.Subject{Connect: func(script *devicetest.Plugin, feed device.Feed) device.Plugin {
			n := runHost(t, t.TempDir(), plugin.Options{Receiver: &receiver{feed: feed, connections: make(chan connection, 1)}})
			(&fakePlugin{script: script}).serve(t, n.path("p.sock"))
			require.NoError(t, n.register(t.Context(), "p.sock"))
			return n.await(t).plugin
		}}
	})
}

func TestRegister(t *testing.T) {
	dir, requested := filepath.Join(t.TempDir(), "d"), make(chan string, 1)
	n := runHost(t, dir, plugin.Options{Hooks: plugin.Hooks{RegistrationRequested: func(resource string) { requested <- resource }}})
	require.Eventually(t, func() bool { _, err := os.Stat(n.path("DEPRECATION")); return err == nil }, timeout, tick)
	found, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o750), found.Mode().Perm())

	f := newFake().serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock"))
	assert.Equal(t, resource, <-requested)
	c := n.await(t)
	assert.Equal(t, [2]string{resource, n.path("p.sock")}, [2]string{c.resource, c.socket})
	c.awaitDevices(t, "gpu0")
	require.NoError(t, n.Check())

	// A stream that has ended is not opened again, although the plugin is back.
	f.stop()
	c.awaitClosed(t)
	_, err = c.plugin.Allocate(t.Context(), []string{"gpu0"})
	require.EqualError(t, err, "endpoint "+c.socket+" has been stopped")
	require.EqualError(t, c.plugin.PreStart(t.Context(), []string{"gpu0"}),
		"device plugin PreStartContainer rpc failed with err: endpoint "+c.socket+" has been stopped")
	_, err = c.plugin.Preferred(t.Context(), []string{"gpu0"}, nil, 1)
	require.EqualError(t, err, "device plugin GetPreferredAllocation rpc failed with err: endpoint "+c.socket+" has been stopped")
	newFake().serve(t, n.path("p.sock"))
	newFake().serve(t, n.path("q.sock"))
	require.NoError(t, n.register(t.Context(), "q.sock"))
	assert.Equal(t, n.path("q.sock"), n.await(t).socket)
	assert.Empty(t, n.connections)
}

// A second registration of a socket replaces the first, and the end of the plugin is noticed.
func TestReregistration(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	f := newFake().serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock"))
	first := n.await(t)
	first.awaitDevices(t, "gpu0")
	require.NoError(t, n.register(t.Context(), "p.sock"))
	second := n.await(t)
	first.awaitClosed(t)
	second.awaitDevices(t, "gpu0")
	_, err := first.plugin.Allocate(t.Context(), []string{"gpu0"})
	require.ErrorContains(t, err, "has been stopped")
	_, err = second.plugin.Allocate(t.Context(), []string{"gpu0"})
	require.NoError(t, err)
	f.stop()
	second.awaitClosed(t)

	// The plugin restarts with another socket file of this name.
	newFake().serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock"))
	n.await(t).awaitDevices(t, "gpu0")
}

// Of many registrations of one socket at a time, the last connected one stays.
func TestConcurrentRegistrations(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	newFake().serve(t, n.path("p.sock"))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := n.register(t.Context(), "p.sock"); err != nil {
				assert.ErrorContains(t, err, "a newer registration of the socket replaces it")
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, n.connections)
	for len(n.connections) > 1 {
		n.await(t).awaitClosed(t)
	}
	last := n.await(t)
	last.awaitDevices(t, "gpu0")
	assert.False(t, last.feed.Closed())
}

// One socket may serve two resources, as in the kubelet.
func TestTwoResourcesOfOneSocket(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	newFake().serve(t, n.path("p.sock"))
	for _, name := range []string{"vendor.example/a", "vendor.example/b"} {
		require.NoError(t, n.request(t.Context(), newRequest(name, "p.sock")))
		c := n.await(t)
		assert.Equal(t, name, c.resource)
		defer func() { assert.False(t, c.feed.Closed()) }()
		c.awaitDevices(t, "gpu0")
	}
}

// A plugin that serves only after Register has returned is connected.
func TestRegisterBeforeServing(t *testing.T) {
	t.Parallel()
	for name, listens := range map[string]bool{"none": false, "backlog": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := runHost(t, t.TempDir(), plugin.Options{})
			f, l := newFake(), net.Listener(nil)
			if listens {
				l = listen(t, n.path("p.sock")) // accepts no connection
			}
			require.NoError(t, n.register(t.Context(), "p.sock"))
			assert.Empty(t, n.connections)
			if !listens {
				l = listen(t, n.path("p.sock"))
			}
			f.serveOn(t, l)
			n.await(t).awaitDevices(t, "gpu0")
		})
	}
}

// A plugin that serves while Register waits is connected when Register returns.
func TestServeDuringRegister(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	requested := make(chan error, 1)
	go func() { requested <- n.register(t.Context(), "p.sock") }()
	newFake().serve(t, n.path("p.sock"))
	require.NoError(t, <-requested)
	n.await(t).awaitDevices(t, "gpu0")
}

// A host that starts connects to the plugins of its predecessor, and removes no socket but kubelet.sock.
func TestRestartWithSockets(t *testing.T) {
	dir := t.TempDir()
	first := runHost(t, dir, plugin.Options{})
	f := newFake().serve(t, first.path("p.sock"))
	require.NoError(t, first.register(t.Context(), "p.sock"))
	c := first.await(t)
	c.awaitDevices(t, "gpu0")
	first.stop()
	assert.True(t, c.feed.Closed(), "Run has closed the feeds")
	require.NoError(t, first.Check())

	for _, name := range []string{"kubelet.sock", "dead.sock"} { // as after kill -9
		l := listen(t, filepath.Join(dir, name))
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
	}
	require.NoError(t, os.Symlink("p.sock", filepath.Join(dir, "link.sock")))
	second := runHost(t, dir, plugin.Options{Sockets: []device.Socket{
		{Resource: "vendor.example/dead", Path: "dead.sock"},
		{Resource: "vendor.example/none", Path: "none.sock"},
		{Resource: "vendor.example/link", Path: "link.sock"},
		{Resource: resource, Path: c.socket},
	}})
	again := second.await(t)
	assert.Equal(t, resource, again.resource)
	again.awaitDevices(t, "gpu0")
	require.FileExists(t, filepath.Join(dir, "dead.sock"))

	// The plugin notices the new kubelet.sock, and restarts.
	f.stop()
	again.awaitClosed(t)
	newFake().serve(t, second.path("p.sock"))
	require.NoError(t, second.register(t.Context(), "p.sock"))
	second.await(t).awaitDevices(t, "gpu0")
	assert.Empty(t, second.connections)
}

// The registration server starts as soon as the obstacle is removed.
func TestServerIsStartedAgain(t *testing.T) {
	for name, block := range map[string]func(t *testing.T, path string) (remove func() error){
		"file": func(t *testing.T, path string) func() error {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			return func() error { return os.Remove(path) }
		},
		"process": func(t *testing.T, path string) func() error { return listen(t, path).Close },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			remove := block(t, filepath.Join(dir, "kubelet.sock"))
			n := runHost(t, dir, plugin.Options{})
			require.Eventually(t, func() bool { return n.Check() != nil }, timeout, tick)
			require.ErrorContains(t, n.Check(),
				"device registration error: device plugin registration gRPC server failed and no device plugins can register: listen on ")
			require.NoError(t, remove())
			newFake().serve(t, n.path("p.sock"))
			require.NoError(t, n.register(t.Context(), "p.sock"))
			require.NoError(t, n.Check())
		})
	}
}

// A plugin dies within Allocate.
func TestPluginDiesInAllocate(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	f := newFake()
	died := make(chan struct{})
	f.script.SetFaults(devicetest.Faults{Allocate: func(ctx context.Context, _ []string, _ func() (device.Response, error)) (device.Response, error) {
		go func() { defer close(died); f.stop() }()
		return device.Response{}, devicetest.Hang(ctx)
	}})
	f.serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock"))
	c := n.await(t)
	c.awaitDevices(t, "gpu0")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := c.plugin.Allocate(ctx, []string{"gpu0"})
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
	c.awaitClosed(t)
	<-died
}

func TestNew(t *testing.T) {
	r := newReceiver()
	for want, opts := range map[string]plugin.Options{
		"field Dir is empty":                   {Receiver: r},
		`field Dir: "d" is no absolute path`:   {Dir: "d", Receiver: r},
		"field Receiver is nil":                {Dir: "/d"},
		`field Sockets: resource "gpu"`:        {Dir: "/d", Receiver: r, Sockets: []device.Socket{{Resource: "gpu", Path: "p"}}},
		`field Sockets: socket "/d/../../p"`:   {Dir: "/d", Receiver: r, Sockets: []device.Socket{{Resource: resource, Path: "/d/../../p"}}},
		`field Sockets: socket "/d/p\x00.sock`: {Dir: "/d", Receiver: r, Sockets: []device.Socket{{Resource: resource, Path: "p\x00.sock"}}},
	} {
		_, err := plugin.New(opts)
		require.ErrorContains(t, err, want)
	}
	h, err := plugin.New(plugin.Options{Dir: t.TempDir(), Receiver: r})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, h.Run(ctx))
	require.ErrorContains(t, h.Run(ctx), "second call of Run")
}

// Plugins that have registered many sockets do not prevent a restart. The newest socket of each resource is connected.
func TestTooManySockets(t *testing.T) {
	dir := t.TempDir()
	newFake().serve(t, filepath.Join(dir, "new.sock"))
	var sockets []device.Socket
	for i := range 1024 {
		sockets = append(sockets, device.Socket{Resource: resource, Path: fmt.Sprint(i, ".sock")})
	}
	log := newLogRecorder()
	n := runHost(t, dir, plugin.Options{Sockets: append(sockets, device.Socket{Resource: resource, Path: "new.sock"}), Logger: slog.New(log)})
	n.await(t).awaitDevices(t, "gpu0")
	assert.Equal(t, "1024", log.attr("too many sockets of device plugins: some are not connected", "omitted"))
	assert.Zero(t, log.count("device plugin is not connected"))
}

// Run returns although a Register call waits for a hung plugin.
func TestRunReturnsWhileRegistering(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	f, hung := newFake(), make(chan struct{})
	f.options = func(ctx context.Context) (*optionsResponse, error) {
		close(hung)
		return nil, devicetest.Hang(ctx)
	}
	f.serve(t, n.path("p.sock"))
	requested := make(chan error, 1)
	go func() { requested <- n.register(t.Context(), "p.sock") }()
	<-hung
	begin := time.Now()
	n.stop()
	assert.Less(t, time.Since(begin), 5*time.Second)
	require.Error(t, <-requested)
	assert.NoFileExists(t, n.path("kubelet.sock"))
	require.ErrorContains(t, n.Handler().Register(t.Context(), registryPlugin(n.path("p.sock"))), "Run is not running")
}

// The number of plugins is limited. Plugins that are connecting count.
func TestTooManyPlugins(t *testing.T) {
	skipWithFewFiles(t)
	dir := t.TempDir()
	listen(t, filepath.Join(dir, "hung.sock")) // accepts no connection
	var sockets []device.Socket
	for i := range 1024 {
		sockets = append(sockets, device.Socket{Resource: fmt.Sprint("vendor.example/", i), Path: "hung.sock"})
	}
	newFake().serve(t, filepath.Join(dir, "p.sock"))
	for try := 0; ; try++ {
		start := time.Now()
		n := runHost(t, dir, plugin.Options{Sockets: sockets})
		err := n.register(t.Context(), "p.sock")
		n.stop()
		if err == nil && try < 5 && time.Since(start) > 5*time.Second {
			continue // on a busy machine, connections were given up before the registration
		}
		require.ErrorContains(t, err, "1024 device plugins are connected or connecting, and no more are allowed")
		return
	}
}

var errRefused = errors.New("16 plugins are connected for it")
