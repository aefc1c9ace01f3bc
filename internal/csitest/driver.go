// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csitest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Call is a recorded call of a [Driver].
type Call struct {
	Method  string // name of the RPC, such as NodePublishVolume
	Request proto.Message
}

// Options configure a [Driver].
type Options struct {
	Name     string   // driver name; empty means csi.example
	Registry string   // directory of the registration socket; empty: the driver does not register itself
	Versions []string // supported versions of CSI; nil means 1.0.0

	Capabilities []csi.NodeServiceCapability_RPC_Type
	NodeInfo     *csi.NodeGetInfoResponse // nil means node ID "node"
	Health       *csi.VolumeHealth        // health that is reported for all volumes

	// BeforeCall is called before a call takes effect. Its error is the response. Nil: no faults.
	BeforeCall func(ctx context.Context, c Call) error
	// AfterCall is called after a call has taken effect, with the error of the call. Its result is the response. Nil: the error
	// is unchanged.
	AfterCall func(c Call, err error) error
}

// AllCapabilities returns all capabilities of a CSI node service that package volume/csi can use. It is a value for
// Options.Capabilities.
func AllCapabilities() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	}
}

// Driver is a fake CSI driver. Create it with [Start]. Its methods may be called from several goroutines.
type Driver struct {
	opts Options
	t    testing.TB
	dir  string

	mu       sync.Mutex // guards the fields below
	calls    []Call
	state    map[mountPoint]*csi.VolumeCapability
	server   *grpc.Server
	reg      *grpc.Server
	statuses []*registration.RegistrationStatus

	wg sync.WaitGroup
}

// Start starts a driver with opts. The driver is stopped when the test ends.
func Start(t testing.TB, opts Options) *Driver {
	t.Helper()
	if opts.Name == "" {
		opts.Name = "csi.example"
	}
	if opts.Versions == nil {
		opts.Versions = []string{"1.0.0"}
	}
	if opts.NodeInfo == nil {
		opts.NodeInfo = &csi.NodeGetInfoResponse{NodeId: "node"}
	}
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{opts: opts, t: t, dir: dir, state: map[mountPoint]*csi.VolumeCapability{}}
	t.Cleanup(func() {
		d.Stop()
		_ = os.RemoveAll(dir)
	})
	d.Restart()
	return d
}

// Socket returns the path of the driver's unix socket, which serves the CSI services.
func (d *Driver) Socket() string { return filepath.Join(d.dir, "csi.sock") }

// RegistrationSocket returns the path of the registration socket, by which the kubelet's plugin watcher finds the driver.
// The socket exists only if Options.Registry is set.
func (d *Driver) RegistrationSocket() string {
	return filepath.Join(d.opts.Registry, d.opts.Name+"-reg.sock")
}

// Restart starts the driver again after Stop. It keeps its records of staged and published volumes.
func (d *Driver) Restart() {
	d.t.Helper()
	g := grpc.NewServer(grpc.UnaryInterceptor(d.interceptCall))
	csi.RegisterNodeServer(g, &node{d: d})
	csi.RegisterIdentityServer(g, &identity{d: d})
	d.startServer(g, d.Socket())
	var reg *grpc.Server
	if d.opts.Registry != "" {
		reg = grpc.NewServer()
		registration.RegisterRegistrationServer(reg, &registrar{d: d})
		d.startServer(reg, d.RegistrationSocket())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.reg = g, reg
}

// startServer serves the gRPC server on a new unix socket at path, in place of an existing socket.
func (d *Driver) startServer(server *grpc.Server, path string) {
	d.t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.wg.Go(func() { _ = server.Serve(l) })
}

// Stop stops the driver and its registration at once, like a crash: running calls get no response, and both sockets are removed.
// The driver keeps its records of volumes for Restart.
func (d *Driver) Stop() {
	d.mu.Lock()
	servers := []*grpc.Server{d.server, d.reg}
	d.server, d.reg = nil, nil
	d.mu.Unlock()
	for _, g := range servers {
		if g != nil {
			g.Stop()
		}
	}
	d.wg.Wait()
}

// SetCapabilities replaces the capabilities that the driver reports.
func (d *Driver) SetCapabilities(capabilities ...csi.NodeServiceCapability_RPC_Type) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Capabilities = slices.Clone(capabilities)
}

// Calls returns the CSI calls that the driver has received, in order. NodeGetCapabilities is omitted.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Methods returns the method of each CSI call that the driver has received, in order. NodeGetCapabilities is omitted.
func (d *Driver) Methods() []string {
	var names []string
	for _, c := range d.Calls() {
		names = append(names, c.Method)
	}
	return names
}

// ClearCalls deletes the records of all calls so far.
func (d *Driver) ClearCalls() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Volumes returns a line for each path at which a volume is staged or published, sorted: "staged HANDLE PATH" or "published
// HANDLE PATH".
func (d *Driver) Volumes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []string{}
	for p := range d.state {
		all = append(all, p.kind+" "+p.handle+" "+p.path)
	}
	slices.Sort(all)
	return all
}

// RegistrationResults returns the results that the agent sent for each registration of the driver, in order: "registered" or the
// error text.
func (d *Driver) RegistrationResults() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, s := range d.statuses {
		if s.GetPluginRegistered() {
			all = append(all, "registered")
		} else {
			all = append(all, s.GetError())
		}
	}
	return all
}

// interceptCall records a CSI call, and calls Options.BeforeCall, handle and Options.AfterCall. An error of BeforeCall is
// the response.
func (d *Driver) interceptCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	message, _ := request.(proto.Message)
	c := Call{Method: filepath.Base(info.FullMethod), Request: message}
	if c.Method != "NodeGetCapabilities" {
		d.mu.Lock()
		d.calls = append(d.calls, c)
		d.mu.Unlock()
	}
	if d.opts.BeforeCall != nil {
		if err := d.opts.BeforeCall(ctx, c); err != nil {
			return nil, err
		}
	}
	answer, err := handle(ctx, request)
	if d.opts.AfterCall != nil {
		err = d.opts.AfterCall(c, err)
	}
	return answer, err
}

// Hang is a value for Options.BeforeCall. It blocks until the client cancels the call or the driver stops.
func Hang(ctx context.Context, _ Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// registrar implements the registration service of a [Driver].
type registrar struct {
	registration.UnimplementedRegistrationServer

	d *Driver
}

// GetInfo returns the name and the supported versions of the driver, and the path of its CSI socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: r.d.opts.Name, Endpoint: r.d.Socket(), SupportedVersions: r.d.opts.Versions}, nil
}

// NotifyRegistrationStatus records the result of a registration, which the agent sends.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.statuses = append(r.d.statuses, status)
	return &registration.RegistrationStatusResponse{}, nil
}
