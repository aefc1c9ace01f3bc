// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry_test

import (
	"context"
	"errors"
	"fmt"
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
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/seed81659283/nodeagent/internal/pluginregistry"
)

// timeout limits the wait for each event.
const timeout = time.Minute

// plugin is a fake plugin with its registration service.
type plugin struct {
	registration.UnimplementedRegistrationServer

	info *registration.PluginInfo
	hang bool

	notifications chan string // "registered" or the error of each notification
	stop          func()
}

func (p *plugin) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if p.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	text := s.GetError()
	if s.GetPluginRegistered() {
		text = "registered"
	}
	select {
	case p.notifications <- text:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// serve starts the plugin p with its socket at path. p.stop stops it and removes the socket.
func serve(t *testing.T, path string, p *plugin) *plugin {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	p.notifications = make(chan string, 100)
	g := grpc.NewServer()
	registration.RegisterRegistrationServer(g, p)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // the server may stop before it serves
			assert.NoError(t, err)
		}
	})
	p.stop = sync.OnceFunc(func() { g.Stop(); wg.Wait() })
	t.Cleanup(p.stop)
	return p
}

func newCSIPlugin(name string) *plugin {
	return &plugin{info: &registration.PluginInfo{Type: "CSIPlugin", Name: name, SupportedVersions: []string{"1.0.0"}}}
}

// recorder is a handler that records its calls.
type recorder struct {
	invalid, fail error
	calls         chan string
}

func newRecorder() *recorder { return &recorder{calls: make(chan string, 1000)} }

func (r *recorder) Validate(pluginregistry.Plugin) error { return r.invalid }

func (r *recorder) Register(_ context.Context, p pluginregistry.Plugin) error {
	r.calls <- "register " + p.Name + " " + filepath.Base(p.Endpoint) + " " + strings.Join(p.Versions, ",")
	return r.fail
}

func (r *recorder) Deregister(_ context.Context, p pluginregistry.Plugin) {
	r.calls <- "deregister " + p.Name
}

func (r *recorder) requireCall(t *testing.T, want string) {
	t.Helper()
	requireReceive(t, r.calls, want)
}

func requireReceive(t *testing.T, from chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		require.Contains(t, got, want)
	case <-time.After(timeout):
		require.Fail(t, "no event within the timeout", "want %q", want)
	}
}

// runWatcher runs a watcher of the directory dir until the test ends or stop is called.
func runWatcher(t *testing.T, dir string, r *recorder, o pluginregistry.Options) (stop func()) {
	t.Helper()
	o.Dir, o.Handlers = dir, map[string]pluginregistry.Handler{"CSIPlugin": r}
	w, err := pluginregistry.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, w.Run(ctx)) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func TestRegistration(t *testing.T) {
	dir, r := filepath.Join(t.TempDir(), "registry"), newRecorder()
	require.NoError(t, os.Mkdir(dir, 0o700))
	first := serve(t, filepath.Join(dir, "a.sock"), newCSIPlugin("a.example"))
	runWatcher(t, dir, r, pluginregistry.Options{})
	r.requireCall(t, "register a.example a.sock 1.0.0")
	requireReceive(t, first.notifications, "registered")

	// A plugin in a subdirectory has its endpoint in another directory.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	b := newCSIPlugin("b.example")
	b.info.Endpoint = "/var/lib/plugins/b/csi.sock"
	serve(t, filepath.Join(dir, "sub", "b.sock"), b)
	r.requireCall(t, "register b.example csi.sock 1.0.0")
	requireReceive(t, b.notifications, "registered")

	// A plugin restarts.
	first.stop()
	r.requireCall(t, "deregister a.example")
	serve(t, filepath.Join(dir, "a.sock"), newCSIPlugin("a.example"))
	r.requireCall(t, "register a.example")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	r.requireCall(t, "deregister b.example")

	// The directory is removed and created again.
	require.NoError(t, os.RemoveAll(dir))
	r.requireCall(t, "deregister a.example")
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return err == nil }, timeout, time.Millisecond)
	serve(t, filepath.Join(dir, "c.sock"), newCSIPlugin("c.example"))
	r.requireCall(t, "register c.example")
}

// Files, links and hidden sockets are ignored. Plugins that hang, return invalid data or have no handler do not delay other
// plugins.
func TestHostileSocketsDelayNoOtherPlugin(t *testing.T) {
	dir, elsewhere, r := t.TempDir(), t.TempDir(), newRecorder()
	at := func(name string) string { return filepath.Join(dir, name) }
	serve(t, filepath.Join(elsewhere, "real.sock"), newCSIPlugin("linked.example"))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "real.sock"), at("link.sock")))
	require.NoError(t, os.Symlink(elsewhere, at("dir")))
	require.NoError(t, os.Symlink(dir, at("loop")))
	require.NoError(t, os.WriteFile(at("file.sock"), nil, 0o600))
	require.NoError(t, os.Mkdir(at(".hidden"), 0o700))
	serve(t, at(".hidden/x.sock"), newCSIPlugin("hidden.example"))
	serve(t, at(".x.sock"), newCSIPlugin("dot.example"))

	for i := range 20 {
		hung := newCSIPlugin("hung.example")
		hung.hang = true
		serve(t, at(fmt.Sprintf("a-hung%d.sock", i)), hung)
		l, err := net.Listen("unix", at(fmt.Sprintf("a-mute%d.sock", i))) // accepts no connection
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
	}
	for name, info := range map[string]*registration.PluginInfo{
		"type":     {Type: "DevicePlugin", Name: "dev"},
		"endpoint": {Type: "CSIPlugin", Name: "e", Endpoint: "../csi.sock"},
		"long":     {Type: "CSIPlugin", Name: strings.Repeat("x", 1000)},
		"many":     {Type: "CSIPlugin", Name: "many", SupportedVersions: make([]string, 1000)},
		"huge":     {Type: "CSIPlugin", Name: "huge", Endpoint: "/" + strings.Repeat("x", 2<<20)},
	} {
		serve(t, at("b-"+name+".sock"), &plugin{info: info})
	}

	good := serve(t, at("z-good.sock"), newCSIPlugin("good.example"))
	begun := time.Now()
	runWatcher(t, dir, r, pluginregistry.Options{})
	r.requireCall(t, "register good.example")
	requireReceive(t, good.notifications, "registered")
	require.Less(t, time.Since(begun), time.Minute) // in sequence the hung plugins would take minutes
	time.Sleep(600 * time.Millisecond)              // time of the second attempts
	require.Empty(t, r.calls)
}

// A plugin is notified of the reason for its refusal, and retried.
func TestRefusedPluginIsNotifiedAndRetried(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder()
	r.invalid = errors.New("version 2 is not supported")
	p := serve(t, filepath.Join(dir, "a.sock"), newCSIPlugin("a.example"))
	other := serve(t, filepath.Join(dir, "b.sock"), &plugin{info: &registration.PluginInfo{Type: "DRAPlugin", Name: "dra"}})
	stop := runWatcher(t, dir, r, pluginregistry.Options{RefuseOthers: true})
	requireReceive(t, p.notifications, "plugin a.example at socket "+dir+"/a.sock is invalid: version 2 is not supported")
	requireReceive(t, other.notifications, "no handler registered for plugin type: DRAPlugin")
	requireReceive(t, p.notifications, "version 2") // the retry after 0.5 s
	require.Empty(t, r.calls)
	stop()

	r = newRecorder()
	r.fail = errors.New("no node info")
	runWatcher(t, dir, r, pluginregistry.Options{})
	r.requireCall(t, "register a.example")
	for range 2 { // the first message may be of the stopped watcher
		select {
		case said := <-p.notifications:
			if strings.Contains(said, "no node info") {
				return
			}
		case <-time.After(timeout):
			require.Fail(t, "the plugin is not notified")
		}
	}
}

// Sockets beyond the limits are ignored, and the other sockets stay registered.
func TestScanLimits(t *testing.T) {
	dir, r := t.TempDir(), newRecorder()
	serve(t, filepath.Join(dir, "a.sock"), newCSIPlugin("a.example"))
	runWatcher(t, dir, r, pluginregistry.Options{})
	r.requireCall(t, "register a.example")
	for i := range 100 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprintf("b%d/c/d", i)), 0o700))
	}
	serve(t, filepath.Join(dir, "z.sock"), newCSIPlugin("z.example"))
	r.requireCall(t, "register z.example")
	for i := range 300 {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("c%d", i)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
	}
	serve(t, filepath.Join(dir, "y.sock"), newCSIPlugin("y.example"))
	time.Sleep(300 * time.Millisecond)
	for len(r.calls) > 0 {
		require.Contains(t, <-r.calls, "y.example", "registered plugins stay; y.example may exceed the limit")
	}
}

func TestNew(t *testing.T) {
	for want, o := range map[string]pluginregistry.Options{
		`field Dir: "" is no absolute path`: {},
		"field Handlers is empty":           {Dir: "/x"},
		"field Handlers: CSIPlugin is nil":  {Dir: "/x", Handlers: map[string]pluginregistry.Handler{"CSIPlugin": nil}},
	} {
		_, err := pluginregistry.New(o)
		require.ErrorContains(t, err, want)
	}
	w, err := pluginregistry.New(pluginregistry.Options{Dir: t.TempDir(), Handlers: map[string]pluginregistry.Handler{"CSIPlugin": newRecorder()}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
	require.ErrorContains(t, w.Run(ctx), "second call of Run")
}
