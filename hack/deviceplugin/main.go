// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command deviceplugin is a device plugin whose devices are files of a directory. It is for the tests of this project, and for experiments with
// devices on one machine. It needs root, because each device has a device node: one of /dev/loop-control,
// which containers cannot open by default.
//
//	deviceplugin -dir /var/lib/kubelet/device-plugins -resource example.com/gadget -data /tmp/gadgets
//
// A file DATA/ID is a device. Its content is "healthy" or another word, and the NUMA nodes, such as "healthy 0 1". The container that is given a device
// has /dev/gadget-ID, the file /gadgets/ID, the environment variable GADGETS with all IDs, and an annotation, all named after the resource; with -cdi the
// CDI device RESOURCE=ID, and no device node. With -plain it has only the environment variable and the annotation, and the plugin needs no root. The file
// DATA/.calls has a line for each call of the agent. While DATA/.hold exists, Allocate does not return. The plugin registers when kubelet.sock is created,
// also again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// pollPeriod is the time between two reads of the files.
const pollPeriod = 50 * time.Millisecond

func main() {
	p := &gadgets{}
	flag.StringVar(&p.dir, "dir", "/var/lib/kubelet/device-plugins", "directory with kubelet.sock")
	flag.StringVar(&p.resource, "resource", "example.com/gadget", "name of the extended resource")
	flag.StringVar(&p.data, "data", "", "directory with a file for each device")
	flag.BoolVar(&p.cdi, "cdi", false, "name CDI devices instead of device nodes")
	flag.BoolVar(&p.plain, "plain", false, "neither mounts nor device nodes, for a runtime of plain processes")
	flag.BoolVar(&p.once, "once", false, "register only once, although kubelet.sock is created again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := p.serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

// gadgets is the device plugin.
type gadgets struct {
	api.UnimplementedDevicePluginServer
	dir, resource, data string
	cdi, plain, once    bool

	mu sync.Mutex // serializes writes of calls
}

// serve serves the plugin until ctx ends.
func (p *gadgets) serve(ctx context.Context) error {
	if p.data == "" || flag.NArg() > 0 {
		return errors.New("-data is needed, and no arguments are taken")
	}
	if err := os.MkdirAll(filepath.Join(p.data, ".nodes"), 0o700); err != nil {
		return err
	}
	socket := filepath.Join(p.dir, p.socketName())
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() {
		p.keepRegistered(ctx)
		<-ctx.Done()
		server.Stop()
	}()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func (p *gadgets) socketName() string { return strings.ReplaceAll(p.resource, "/", "_") + ".sock" }

// baseName returns the name of the resource without its domain.
func (p *gadgets) baseName() string { return path.Base(p.resource) }

// keepRegistered registers the plugin each time kubelet.sock is created.
func (p *gadgets) keepRegistered(ctx context.Context) {
	for inode := uint64(0); ctx.Err() == nil; {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(p.dir, "kubelet.sock"), &stat); err == nil && stat.Ino != inode {
			if err := p.register(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "deviceplugin: register:", err)
			} else {
				fmt.Println("registered", p.resource)
				if inode = stat.Ino; p.once {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollPeriod):
		}
	}
}

// register registers the plugin once.
func (p *gadgets) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+filepath.Join(p.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: p.socketName(), ResourceName: p.resource, Options: &api.DevicePluginOptions{PreStartRequired: true},
	})
	return err
}

// GetDevicePluginOptions requests calls of PreStartContainer.
func (p *gadgets) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch sends the list of devices at first, and after each change of a file.
func (p *gadgets) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for last := "none"; ; {
		devices, text, err := p.listDevices()
		if err != nil {
			return err
		}
		if text != last {
			last = text
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(pollPeriod):
		}
	}
}

// listDevices returns a device for each file in the data directory. text has the names and contents of the files, to detect changes.
func (p *gadgets) listDevices() (devices []*api.Device, text string, err error) {
	entries, err := os.ReadDir(p.data)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(p.data, e.Name()))
		if err != nil {
			return nil, "", err
		}
		text += e.Name() + "=" + string(content) + "\n"
		words := strings.Fields(string(content))
		d := &api.Device{ID: e.Name(), Health: api.Unhealthy}
		if slices.Contains(words, "healthy") {
			d.Health = api.Healthy
		}
		for _, word := range words {
			if node, err := strconv.ParseInt(word, 10, 64); err == nil {
				if d.Topology == nil {
					d.Topology = &api.TopologyInfo{}
				}
				d.Topology.Nodes = append(d.Topology.Nodes, &api.NUMANode{ID: node})
			}
		}
		devices = append(devices, d)
	}
	return devices, text, nil
}

// Allocate returns the environment variable and annotation for the devices of each container. Without -plain it adds mounts and device nodes.
func (p *gadgets) Allocate(ctx context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, r := range request.GetContainerRequests() {
		ids := r.GetDevicesIds()
		p.recordCall("allocate", ids)
		p.awaitRelease(ctx)
		answer := &api.ContainerAllocateResponse{
			Envs:        map[string]string{strings.ToUpper(p.baseName()) + "S": strings.Join(ids, ",")},
			Annotations: map[string]string{p.resource + "s": strings.Join(ids, ",")},
		}
		if !p.plain {
			if err := p.addDevices(answer, ids); err != nil {
				return nil, err
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// awaitRelease returns when DATA/.hold does not exist, or ctx ends.
func (p *gadgets) awaitRelease(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := os.Lstat(filepath.Join(p.data, ".hold")); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollPeriod):
		}
	}
}

// addDevices adds a mount of the file of each device to answer. It also adds the device node, or with -cdi the name of the CDI device.
func (p *gadgets) addDevices(answer *api.ContainerAllocateResponse, ids []string) error {
	for _, id := range ids {
		answer.Mounts = append(answer.Mounts, &api.Mount{ContainerPath: "/" + p.baseName() + "s/" + id, HostPath: filepath.Join(p.data, id), ReadOnly: true})
		if p.cdi {
			answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: p.resource + "=" + id})
			continue
		}
		node := filepath.Join(p.data, ".nodes", id)
		if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create device node %s: %w", node, err)
		}
		answer.Devices = append(answer.Devices, &api.DeviceSpec{ContainerPath: "/dev/" + p.baseName() + "-" + id, HostPath: node, Permissions: "r"})
	}
	return nil
}

// PreStartContainer records the call.
func (p *gadgets) PreStartContainer(_ context.Context, request *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.recordCall("start", request.GetDevicesIds())
	return &api.PreStartContainerResponse{}, nil
}

// recordCall appends a call to DATA/.calls.
func (p *gadgets) recordCall(call string, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(p.data, ".calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		return
	}
	defer f.Close()
	fmt.Fprintln(f, call, strings.Join(ids, ","))
}
