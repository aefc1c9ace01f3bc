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

// timeout is the longest wait for an immediate event.
const timeout = time.Minute

// plugin is a registration service.
type plugin struct {
	registration.UnimplementedRegistrationServer

	info *registration.PluginInfo
	hang bool

	told chan string // "registered", or why not
	stop func()
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
	case p.told <- text:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// serve starts the plugin p with its socket at path. p.stop stops it and removes the socket.
func serve(t *testing.T, path string, p *plugin) *plugin {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	p.told = make(chan string, 100)
	g := grpc.NewServer()
	registration.RegisterRegistrationServer(g, p)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it served
			assert.NoError(t, err)
		}
	})
	p.stop = sync.OnceFunc(func() { g.Stop(); wg.Wait() })
	t.Cleanup(p.stop)
	return p
}

func driver(name string) *plugin {
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

func (r *recorder) Says(t *testing.T, want string) {
	t.Helper()
	hears(t, r.calls, want)
}

func hears(t *testing.T, from chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		require.Contains(t, got, want)
	case <-time.After(timeout):
		require.Fail(t, "nothing happens", "want %q", want)
	}
}

// run runs a watcher of the directory dir until the test ends or stop is called.
func run(t *testing.T, dir string, r *recorder, o pluginregistry.Options) (stop func()) {
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
	first := serve(t, filepath.Join(dir, "a.sock"), driver("a.example"))
	run(t, dir, r, pluginregistry.Options{})
	r.Says(t, "register a.example a.sock 1.0.0")
	hears(t, first.told, "registered")

	// Another one comes, in a directory of its own, with an endpoint elsewhere.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	b := driver("b.example")
	b.info.Endpoint = "/var/lib/plugins/b/csi.sock"
	serve(t, filepath.Join(dir, "sub", "b.sock"), b)
	r.Says(t, "register b.example csi.sock 1.0.0")
	hears(t, b.told, "registered")

	// One is started again.
	first.stop()
	r.Says(t, "deregister a.example")
	serve(t, filepath.Join(dir, "a.sock"), driver("a.example"))
	r.Says(t, "register a.example")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	r.Says(t, "deregister b.example")

	// The directory goes and comes back.
	require.NoError(t, os.RemoveAll(dir))
	r.Says(t, "deregister a.example")
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return err == nil }, timeout, time.Millisecond)
	serve(t, filepath.Join(dir, "c.sock"), driver("c.example"))
	r.Says(t, "register c.example")
}

// Files, links and hidden sockets are ignored. Plugins that hang, return invalid data or have no handler delay no other plugin.
func TestHostileSocketsDelayNoOtherPlugin(t *testing.T) {
	dir, elsewhere, r := t.TempDir(), t.TempDir(), newRecorder()
	at := func(name string) string { return filepath.Join(dir, name) }
	serve(t, filepath.Join(elsewhere, "real.sock"), driver("linked.example"))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "real.sock"), at("link.sock")))
	require.NoError(t, os.Symlink(elsewhere, at("dir")))
	require.NoError(t, os.Symlink(dir, at("loop")))
	require.NoError(t, os.WriteFile(at("file.sock"), nil, 0o600))
	require.NoError(t, os.Mkdir(at(".hidden"), 0o700))
	serve(t, at(".hidden/x.sock"), driver("hidden.example"))
	serve(t, at(".x.sock"), driver("dot.example"))
	for i := range 20 {
		hung := driver("hung.example")
		hung.hang = true
		serve(t, at(fmt.Sprintf("a-hung%d.sock", i)), hung)
		l, err := net.Listen("unix", at(fmt.Sprintf("a-mute%d.sock", i))) // it accepts no connection
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
	good := serve(t, at("z-good.sock"), driver("good.example"))
	begun := time.Now()
	run(t, dir, r, pluginregistry.Options{})
	r.Says(t, "register good.example")
	hears(t, good.told, "registered")
	require.Less(t, time.Since(begun), time.Minute) // one after the other they would take minutes
	time.Sleep(600 * time.Millisecond)              // the second attempt of those that failed
	require.Empty(t, r.calls)
}

// A plugin gets the reason for which it is not registered, and is retried.
func TestRefusedPluginIsNotifiedAndRetried(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder()
	r.invalid = errors.New("version 2 is not supported")
	p := serve(t, filepath.Join(dir, "a.sock"), driver("a.example"))
	other := serve(t, filepath.Join(dir, "b.sock"), &plugin{info: &registration.PluginInfo{Type: "DRAPlugin", Name: "dra"}})
	stop := run(t, dir, r, pluginregistry.Options{RefuseOthers: true})
	hears(t, p.told, "plugin a.example at socket "+dir+"/a.sock is invalid: version 2 is not supported")
	hears(t, other.told, "no handler registered for plugin type: DRAPlugin")
	hears(t, p.told, "version 2") // 0.5 s later
	require.Empty(t, r.calls)
	stop()

	r = newRecorder()
	r.fail = errors.New("no node info")
	run(t, dir, r, pluginregistry.Options{})
	r.Says(t, "register a.example")
	for range 2 { // of before too
		select {
		case said := <-p.told:
			if strings.Contains(said, "no node info") {
				return
			}
		case <-time.After(timeout):
			require.Fail(t, "it is not told")
		}
	}
}

// Sockets beyond the limits are omitted, and the remaining ones are registered.
func TestScanLimits(t *testing.T) {
	dir, r := t.TempDir(), newRecorder()
	serve(t, filepath.Join(dir, "a.sock"), driver("a.example"))
	run(t, dir, r, pluginregistry.Options{})
	r.Says(t, "register a.example")
	for i := range 100 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprintf("b%d/c/d", i)), 0o700))
	}
	serve(t, filepath.Join(dir, "z.sock"), driver("z.example"))
	r.Says(t, "register z.example")
	for i := range 300 {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("c%d", i)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
	}
	serve(t, filepath.Join(dir, "y.sock"), driver("y.example"))
	time.Sleep(300 * time.Millisecond)
	for len(r.calls) > 0 {
		require.Contains(t, <-r.calls, "y.example", "what is registered stays, and this may be one too many")
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
