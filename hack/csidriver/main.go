// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command csidriver is a CSI driver whose volumes are files of a directory: as ext4 on a loop device, or as the block device itself.
// It is for the tests of this project, and for experiments with CSI volumes on one machine. It needs root, mkfs.ext4 and
// resize2fs. It also implements the operations that other drivers run in a controller.
//
//	csidriver -endpoint /run/csi/csi.sock -data /var/lib/csi -registry /var/lib/kubelet/plugins_registry
//
// A volume is created by CreateVolume, or by hand: `truncate -s 64M DATA/volumes/HANDLE.img` creates the volume with that handle. An
// inline volume is created when it is published, with the size of its attribute "size" in bytes, and deleted when it is unpublished.
// The driver keeps no state in memory: it may be killed at any time, and continues after a restart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// config contains the values of the flags.
type config struct {
	name, endpoint, data, registry, node string
}

func main() {
	var c config
	flag.StringVar(&c.name, "name", "loop.csi.example", "name of the driver")
	flag.StringVar(&c.endpoint, "endpoint", "", "path of the socket")
	flag.StringVar(&c.data, "data", "", "directory of the volumes")
	flag.StringVar(&c.registry, "registry", "", "directory in which drivers register themselves (none: it does not)")
	flag.StringVar(&c.node, "node", "node", "ID of this node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serveDriver(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// serveDriver serves the driver until ctx ends.
func serveDriver(ctx context.Context, c config) error {
	if c.endpoint == "" || c.data == "" || flag.NArg() > 0 {
		return errors.New("-endpoint and -data are needed, and nothing else is taken")
	}
	s, err := openStore(c.data)
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(logCalls))
	n := &node{store: s, id: c.node}
	csi.RegisterIdentityServer(g, &identity{name: c.name})
	csi.RegisterControllerServer(g, &controller{store: s, node: n})
	csi.RegisterNodeServer(g, n)
	l, err := listenUnix(c.endpoint)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- g.Serve(l) }()
	defer g.Stop()
	if c.registry != "" {
		r := grpc.NewServer()
		registration.RegisterRegistrationServer(r, &registrar{config: c})
		l, err := listenUnix(filepath.Join(c.registry, c.name+"-reg.sock"))
		if err != nil {
			return err
		}
		go func() { failed <- r.Serve(l) }()
		defer r.Stop()
	}
	fmt.Fprintln(os.Stderr, "csidriver: serving", c.name, "at", c.endpoint)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listenUnix listens on a unix socket, and replaces the socket of a killed driver.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// logCalls is a gRPC interceptor that logs each call and its result.
func logCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := handle(ctx, request)
	if name := filepath.Base(info.FullMethod); name != "NodeGetCapabilities" {
		fmt.Fprintln(os.Stderr, "csidriver:", name, time.Since(began).Round(time.Millisecond), err)
	}
	return answer, err
}

// identity is the CSI identity service.
type identity struct {
	csi.UnimplementedIdentityServer

	name string
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "1.0.0"}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrar registers the driver with the kubelet, like the node-driver-registrar sidecar of other drivers.
type registrar struct {
	registration.UnimplementedRegistrationServer

	config
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Fprintf(os.Stderr, "csidriver: registered %v %s\n", s.GetPluginRegistered(), s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}
