// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// scriptedPlugin is a device plugin of the test process.
type scriptedPlugin struct {
	deviceapi.UnimplementedDevicePluginServer

	devices  []*deviceapi.Device
	period   time.Duration                                                // of lists in which the health of half of the devices changes; zero: one list
	allocate func(*deviceapi.AllocateRequest) *deviceapi.AllocateResponse // nil: an empty response
	lists    atomic.Int64                                                 // sent so far
}

// newDevices returns healthy devices whose IDs have length bytes.
func newDevices(count, length int) (list []*deviceapi.Device) {
	for i := range count {
		id := fmt.Sprintf("device%05d-", i)
		list = append(list, &deviceapi.Device{ID: id + strings.Repeat("x", length-len(id)), Health: deviceapi.Healthy})
	}
	return list
}

func (p *scriptedPlugin) GetDevicePluginOptions(context.Context, *deviceapi.Empty) (*deviceapi.DevicePluginOptions, error) {
	return &deviceapi.DevicePluginOptions{}, nil
}

func (p *scriptedPlugin) ListAndWatch(_ *deviceapi.Empty, stream grpc.ServerStreamingServer[deviceapi.ListAndWatchResponse]) error {
	other := make([]*deviceapi.Device, len(p.devices))
	for i, d := range p.devices {
		if other[i] = d; i%2 == 1 {
			other[i] = &deviceapi.Device{ID: d.ID, Health: deviceapi.Unhealthy}
		}
	}
	for i := 0; ; i++ {
		if err := stream.Send(&deviceapi.ListAndWatchResponse{Devices: [][]*deviceapi.Device{p.devices, other}[i%2]}); err != nil {
			return err
		}
		p.lists.Add(1)
		var next <-chan time.Time
		if p.period > 0 {
			next = time.After(p.period)
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-next:
		}
	}
}

func (p *scriptedPlugin) Allocate(_ context.Context, request *deviceapi.AllocateRequest) (*deviceapi.AllocateResponse, error) {
	if p.allocate != nil {
		return p.allocate(request), nil
	}
	return &deviceapi.AllocateResponse{ContainerResponses: []*deviceapi.ContainerAllocateResponse{{}}}, nil
}

// serve serves the plugin in the directory of plugins until the attack ends.
func (p *scriptedPlugin) serve(b *attackedAgent, endpoint string) {
	b.t.Helper()
	path := filepath.Join(b.state, "device-plugins", endpoint)
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		require.NoError(b.t, err)
	}
	l, err := net.Listen("unix", path)
	require.NoError(b.t, err)
	g := grpc.NewServer()
	deviceapi.RegisterDevicePluginServer(g, p)
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(b.rootTest, g.Serve(l)) })
	b.t.Cleanup(func() { g.Stop(); wg.Wait() })
}

// dialSocket returns a connection to a socket in the state directory of the agent, until the attack ends.
func (b *attackedAgent) dialSocket(elements ...string) *grpc.ClientConn {
	path := filepath.Join(append([]string{b.state}, elements...)...)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// registerPlugin registers the plugin at an endpoint.
func registerPlugin(ctx context.Context, conn *grpc.ClientConn, name, endpoint string) error {
	_, err := deviceapi.NewRegistrationClient(conn).Register(ctx, &deviceapi.RegisterRequest{
		Version: deviceapi.Version, Endpoint: endpoint, ResourceName: name,
	}, grpc.WaitForReady(true))
	return err
}

// addPlugin serves and registers a plugin.
func (b *attackedAgent) addPlugin(name, endpoint string, p *scriptedPlugin) {
	b.t.Helper()
	p.serve(b, endpoint)
	ctx, cancel := context.WithTimeout(b.t.Context(), timeout)
	defer cancel()
	require.NoError(b.t, registerPlugin(ctx, b.dialSocket("device-plugins", "kubelet.sock"), name, endpoint))
}

// limitDevices adds a limit to the container of a pod.
func limitDevices(pod *corev1.Pod, name string, count int64) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceName(name): *resource.NewQuantity(count, resource.DecimalSI)}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	return pod
}

// attackUntilEnd runs workers until the end of the attack, also while the health of the agent is checked.
func (b *attackedAgent) attackUntilEnd(workers int, work func(ctx context.Context, worker int)) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				work(ctx, i)
			}
		})
	}
	b.t.Cleanup(func() { cancel(); wg.Wait() })
}

// restlessDevices sends lists of 10 MB, while a pod gets one of the devices.
func restlessDevices(b *attackedAgent) {
	const name = "restless.example/device"
	p := &scriptedPlugin{devices: newDevices(10_000, 1000), period: 10 * time.Millisecond}
	b.addPlugin(name, "restless.sock", p)
	require.NoError(b.t, b.Put(limitDevices(b.goodPod("restless"), name, 2)))
	b.awaitReady("restless", time.Minute)
	pause(b, 10*time.Second)
	exetest.Eventually(b.t, timeout, func() error {
		node, _ := apiservertest.Get[*corev1.Node](b.Server, "", "n1")
		if q := node.Status.Capacity[name]; q.Value() != 10_000 {
			return fmt.Errorf("the Node has %s devices", q.String())
		}
		return nil
	})
	b.t.Logf("%d lists", p.lists.Load())
}

// largeAllocations sends responses of 16 MiB, and smaller ones that are still too large, to 60 pods at once.
func largeAllocations(b *attackedAgent) {
	const name, pods = "large.example/device", 60
	sizes := []int{16 << 20, 3 << 20, 500 << 10}
	var calls atomic.Int64
	b.addPlugin(name, "large.sock", &scriptedPlugin{devices: newDevices(pods, 20), allocate: func(*deviceapi.AllocateRequest) *deviceapi.AllocateResponse {
		value := strings.Repeat("v", sizes[int(calls.Add(1))%len(sizes)]/5)
		response := &deviceapi.ContainerAllocateResponse{Annotations: map[string]string{}}
		for i := range 5 {
			response.Annotations[fmt.Sprint("large.example/", i)] = value
		}
		return &deviceapi.AllocateResponse{ContainerResponses: []*deviceapi.ContainerAllocateResponse{response}}
	}})
	for i := range pods {
		require.NoError(b.t, b.Put(limitDevices(b.goodPod(fmt.Sprint("large", i)), name, 1)))
	}
	for i := range pods {
		pod := b.awaitPhase(fmt.Sprint("large", i), corev1.PodFailed, "UnexpectedAdmissionError")
		require.Contains(b.t, pod.Status.Message, "llocat")
		require.Less(b.t, len(pod.Status.Message), 1000)
	}
}

// listWithoutEnd lists the devices of 10,000 containers on 1,000 connections, of which half read no response. Another client gets its list
// nevertheless.
func listWithoutEnd(b *attackedAgent) {
	const name, connections = "listed.example/device", 1000
	b.addPlugin(name, "listed.sock", &scriptedPlugin{devices: newDevices(10_000, 200)})
	require.NoError(b.t, b.Put(limitDevices(b.goodPod("listed"), name, 10_000)))
	b.awaitReady("listed", time.Minute)
	conns := make([]*grpc.ClientConn, connections)
	for i := range conns {
		conns[i] = b.dialSocket("pod-resources", "kubelet.sock")
	}
	var listed, rejected atomic.Int64
	b.attackUntilEnd(connections, func(ctx context.Context, i int) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if i%2 == 0 {
			stream, err := conns[i].NewStream(ctx, &grpc.StreamDesc{}, podresourcesv1.PodResourcesLister_List_FullMethodName, grpc.WaitForReady(true))
			if err == nil && errors.Join(stream.SendMsg(&podresourcesv1.ListPodResourcesRequest{}), stream.CloseSend()) == nil {
				<-stream.Context().Done()
			}
			return
		}
		if _, err := podresourcesv1.NewPodResourcesListerClient(conns[i]).List(ctx, &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
			rejected.Add(1)
			return
		}
		listed.Add(1)
	})
	pause(b, 15*time.Second)
	b.t.Logf("%d lists, %d errors", listed.Load(), rejected.Load())
	client := podresourcesv1.NewPodResourcesListerClient(b.dialSocket("pod-resources", "kubelet.sock"))
	exetest.Eventually(b.t, timeout, func() error {
		ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		return err
	})
}

// chooseRegistration returns the n-th registration of registrationFlood: its deadline, resource and endpoint.
func chooseRegistration(n int64) (limit time.Duration, resource, endpoint string) {
	endpoint = fmt.Sprintf("flood%d.sock", n/4%2)
	switch n % 4 {
	case 0:
		return 2 * time.Second, strings.Repeat("x", 15<<10) + fmt.Sprint(n), endpoint
	case 1:
		return 100 * time.Millisecond, "flood.example/device", "hung.sock"
	case 2:
		return 2 * time.Second, fmt.Sprint("flood.example/", n), endpoint
	}
	return 2 * time.Second, "flood.example/device", endpoint
}

// registrationFlood sends 2,000 registrations a second: invalid ones, of connected plugins, of sockets that accept no connection, and of new
// resources. A pod gets a device of another plugin meanwhile.
func registrationFlood(b *attackedAgent) {
	const name, rate, workers, connections = "quiet.example/device", 2000, 256, 32
	b.addPlugin(name, "quiet.sock", &scriptedPlugin{devices: newDevices(10, 20)})
	for _, endpoint := range []string{"flood0.sock", "flood1.sock"} {
		(&scriptedPlugin{devices: newDevices(10, 20)}).serve(b, endpoint)
	}
	hung, err := net.Listen("unix", filepath.Join(b.state, "device-plugins", "hung.sock"))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = hung.Close() })
	conns := make([]*grpc.ClientConn, connections)
	for i := range conns {
		conns[i] = b.dialSocket("device-plugins", "kubelet.sock")
	}
	var sent, accepted atomic.Int64
	ticks, before := time.NewTicker(time.Second/rate), len(b.agent.Output())
	b.t.Cleanup(ticks.Stop)
	b.attackUntilEnd(workers, func(ctx context.Context, i int) {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		limit, resource, endpoint := chooseRegistration(sent.Add(1))
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if registerPlugin(ctx, conns[i%connections], resource, endpoint) == nil {
			accepted.Add(1)
		}
	})
	pause(b, 5*time.Second)
	require.NoError(b.t, b.Put(limitDevices(b.goodPod("quiet"), name, 1)))
	b.awaitReady("quiet", time.Minute)
	pause(b, 10*time.Second)
	b.t.Logf("%d registrations, %d accepted, %d bytes of the log", sent.Load(), accepted.Load(), len(b.agent.Output())-before)
	require.Less(b.t, int64(len(b.agent.Output())-before), sent.Load()*4<<10, "a registration adds less than 4 KiB to the log")
	b.agent.Kill() // the agent connects to the plugins of its record at its next start
	b.startAgent()
	b.awaitReady("quiet", time.Minute)
}
