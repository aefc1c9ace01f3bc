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

// Call is a call of a driver.
type Call struct {
	Method  string // such as NodePublishVolume
	Request proto.Message
}

// Options say what a driver is like.
type Options struct {
	Name     string   // empty: csi.example
	Registry string   // the directory of its registration socket; empty: it does not register itself
	Versions []string // nil: 1.0.0

	Capabilities []csi.NodeServiceCapability_RPC_Type
	NodeInfo     *csi.NodeGetInfoResponse // nil: the ID of the node is "node"
	Health       *csi.VolumeHealth        // of all volumes

	// Fault is called before a call takes effect; an error is the answer. Nil: there are none.
	Fault func(ctx context.Context, c Call) error
	// Done is called after a call has taken effect, with its error, and returns the answer. Nil: that error.
	Done func(c Call, err error) error
}

// All returns all capabilities that a node service can have which matters here.
func All() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	}
}

// Driver is a CSI driver. Make one with [Start]. Its methods may be called from several goroutines.
type Driver struct {
	opts Options
	t    testing.TB
	dir  string

	mu     sync.Mutex // guards what follows
	calls  []Call
	state  map[place]*csi.VolumeCapability
	server *grpc.Server
	reg    *grpc.Server
	told   []*registration.RegistrationStatus

	wg sync.WaitGroup
}

// Start starts a driver, which ends with the test.
func Start(t testing.TB, o Options) *Driver {
	t.Helper()
	if o.Name == "" {
		o.Name = "csi.example"
	}
	if o.Versions == nil {
		o.Versions = []string{"1.0.0"}
	}
	if o.NodeInfo == nil {
		o.NodeInfo = &csi.NodeGetInfoResponse{NodeId: "node"}
	}
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{opts: o, t: t, dir: dir, state: map[place]*csi.VolumeCapability{}}
	t.Cleanup(func() {
		d.Stop()
		_ = os.RemoveAll(dir)
	})
	d.Restart()
	return d
}

// Socket returns where the driver listens.
func (d *Driver) Socket() string { return filepath.Join(d.dir, "csi.sock") }

// RegistrationSocket returns where its registration is, if it has one.
func (d *Driver) RegistrationSocket() string {
	return filepath.Join(d.opts.Registry, d.opts.Name+"-reg.sock")
}

// Restart starts the driver, after Stop, with what it knew before.
func (d *Driver) Restart() {
	d.t.Helper()
	g := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterNodeServer(g, &node{d: d})
	csi.RegisterIdentityServer(g, &identity{d: d})
	d.serve(g, d.Socket())
	var reg *grpc.Server
	if d.opts.Registry != "" {
		reg = grpc.NewServer()
		registration.RegisterRegistrationServer(reg, &registrar{d: d})
		d.serve(reg, d.RegistrationSocket())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.reg = g, reg
}

// serve listens at a path that nobody else listens at.
func (d *Driver) serve(g *grpc.Server, path string) {
	d.t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.wg.Go(func() { _ = g.Serve(l) })
}

// Stop ends the driver and its registration at once, as a crash does: calls under way get no answer. Its sockets are removed.
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

// Can changes what the driver can do.
func (d *Driver) Can(capabilities ...csi.NodeServiceCapability_RPC_Type) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Capabilities = slices.Clone(capabilities)
}

// Calls returns the calls so far, in order, those of NodeGetCapabilities left out.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Methods returns the names of the calls so far, as Calls does.
func (d *Driver) Methods() []string {
	var names []string
	for _, c := range d.Calls() {
		names = append(names, c.Method)
	}
	return names
}

// Forget forgets the calls so far.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Volumes returns what is staged and published, as "staged HANDLE PATH" and "published HANDLE PATH", sorted.
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

// Told returns what the driver was told of its registration: "registered", or why it is not.
func (d *Driver) Told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, s := range d.told {
		if s.GetPluginRegistered() {
			all = append(all, "registered")
		} else {
			all = append(all, s.GetError())
		}
	}
	return all
}

// intercept records a call, and has it fail.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	message, _ := request.(proto.Message)
	c := Call{Method: filepath.Base(info.FullMethod), Request: message}
	if c.Method != "NodeGetCapabilities" {
		d.mu.Lock()
		d.calls = append(d.calls, c)
		d.mu.Unlock()
	}
	if d.opts.Fault != nil {
		if err := d.opts.Fault(ctx, c); err != nil {
			return nil, err
		}
	}
	answer, err := handle(ctx, request)
	if d.opts.Done != nil {
		err = d.opts.Done(c, err)
	}
	return answer, err
}

// Hang is a fault that lasts until the caller or the driver ends.
func Hang(ctx context.Context, _ Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// registrar is the registration service.
type registrar struct {
	registration.UnimplementedRegistrationServer

	d *Driver
}

// GetInfo says who the driver is.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: r.d.opts.Name, Endpoint: r.d.Socket(), SupportedVersions: r.d.opts.Versions}, nil
}

// NotifyRegistrationStatus keeps what the driver is told.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.told = append(r.d.told, s)
	return &registration.RegistrationStatusResponse{}, nil
}
