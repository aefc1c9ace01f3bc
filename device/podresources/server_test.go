// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/podresources"
)

const resource = "example.com/gpu"

// node implements podresources.Pods and podresources.Devices. Each change replaces the pods and allocations.
type node struct {
	mu          sync.Mutex
	pods        []device.Pod
	allocations podresources.Allocations
}

func (n *node) Pods() (active, inactive []device.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods, nil
}

func (n *node) Allocations() podresources.Allocations {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocations
}

func (n *node) Allocatable() map[string][]device.Device {
	return map[string][]device.Device{resource: {{ID: "a", Healthy: true, Nodes: 1}, {ID: "b", Healthy: true}}}
}

// addPod adds a pod whose devices are not reserved.
func (n *node) addPod(p device.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(slices.Clip(n.pods), p)
}

// reserve completes the reservation of a pod with a container main.
func (n *node) reserve(uid string, devices ...device.Device) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allocations = maps.Clone(n.allocations)
	if n.allocations == nil {
		n.allocations = podresources.Allocations{}
	}
	n.allocations[uid] = map[string]map[string][]device.Device{"main": {resource: devices}}
}

// releaseAndRemove releases the devices of the first pod, and removes the pod in a later step.
func (n *node) releaseAndRemove() {
	n.mu.Lock()
	n.allocations = maps.Clone(n.allocations)
	delete(n.allocations, n.pods[0].UID)
	n.mu.Unlock()

	n.mu.Lock()
	n.pods = slices.Clone(n.pods[1:])
	n.mu.Unlock()
}

// pod returns a pod whose container main requests count devices.
func pod(name string, count int) device.Pod {
	return device.Pod{UID: "uid-" + name, Namespace: "default", Name: name, Containers: []device.Container{
		{Name: "main", Limits: map[string]int{resource: count}},
	}}
}

// tempSocket returns a short path for a socket in a directory that does not exist.
func tempSocket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pr")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "pod-resources", "kubelet.sock")
}

// serve runs a server until the test ends, and returns a connection that waits for it, and a function that stops it.
func serve(t testing.TB, o podresources.Options) (*grpc.ClientConn, func()) {
	t.Helper()
	if o.Socket == "" {
		o.Socket = tempSocket(t)
	}
	s, err := podresources.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, s.Run(ctx)) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return dial(t, o.Socket), stop
}

func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond, // clients wait for the socket
		}}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func list(ctx context.Context, conn *grpc.ClientConn) ([]string, error) {
	answer, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	var pods []string
	for _, p := range answer.GetPodResources() {
		pods = append(pods, format(p))
	}
	return pods, err
}

// format formats a pod, such as "p main a@0".
func format(p *podresourcesv1.PodResources) string {
	text := p.GetName()
	for _, c := range p.GetContainers() {
		text += " " + c.GetName()
		for _, d := range c.GetDevices() {
			text += " " + formatDevice(d)
		}
	}
	return text
}

func formatDevice(d *podresourcesv1.ContainerDevices) string {
	text := strings.Join(d.GetDeviceIds(), "+")
	for _, n := range d.GetTopology().GetNodes() {
		text += fmt.Sprintf("@%d", n.GetID())
	}
	return text
}

func TestAllMethodsOverASocket(t *testing.T) {
	n := &node{}
	var mu sync.Mutex
	var calls []string
	created := make(chan error, 1)
	record := func(event string) func(version, method string) {
		return func(version, method string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, event+" "+version+" "+method)
		}
	}
	conn, _ := serve(t, podresources.Options{
		Pods: n, Devices: n, CPUs: cpus{}, Rate: -1,
		Hooks: podresources.Hooks{
			SocketCreated: func(temporary, path string) {
				_, err := os.Lstat(path)
				assert.ErrorIs(t, err, fs.ErrNotExist, "the socket is not published yet")
				_, err = os.Lstat(temporary)
				created <- err
			},
			RequestReceived: record("received"), RequestFailed: record("failed"),
		},
	})
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	n.addPod(pod("p", 1))
	n.addPod(pod("q", 0))
	pods, err := list(t.Context(), conn)
	require.NoError(t, err)
	assert.Equal(t, []string{"q main"}, pods, "p has no devices yet")
	require.NoError(t, <-created)
	_, err = client.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: "p", PodNamespace: "default"})
	assert.Equal(t, codes.Unknown, status.Code(err))
	assert.Equal(t, "pod p in namespace default not found", status.Convert(err).Message())

	n.reserve("uid-p", device.Device{ID: "a", Nodes: 1})
	pods, err = list(t.Context(), conn)
	require.NoError(t, err)
	assert.Equal(t, []string{"p main a@0", "q main"}, pods)
	got, err := client.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: "p", PodNamespace: "default"})
	require.NoError(t, err)
	assert.Equal(t, "p main a@0", format(got.GetPodResources()))
	allocatable, err := client.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	require.NoError(t, err)
	assert.Equal(t, "a@0", formatDevice(allocatable.GetDevices()[0]))
	assert.Equal(t, "b", formatDevice(allocatable.GetDevices()[1]))
	assert.Equal(t, []int64{0, 1}, allocatable.GetCpuIds())
	assert.Empty(t, allocatable.GetMemory())
	alpha, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, alpha.GetPodResources()[0].GetContainers()[0].GetDevices()[0].GetDeviceIds())

	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{
		"received v1 List", "received v1 Get", "failed v1 Get", "received v1 List", "received v1 Get",
		"received v1 GetAllocatableResources", "received v1alpha1 List",
	}, calls)
}

// cpus implements podresources.CPUs for a node without exclusive CPUs.
type cpus struct{}

func (cpus) CPUs(string, string) []int64 { return nil }
func (cpus) PodCPUs(string) []int64      { return nil }
func (cpus) AllocatableCPUs() []int64    { return []int64{0, 1} }

func TestServerWithoutSources(t *testing.T) {
	conn, _ := serve(t, podresources.Options{})
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	pods, err := list(t.Context(), conn)
	require.NoError(t, err)
	assert.Empty(t, pods)
	allocatable, err := client.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	require.NoError(t, err)
	assert.Empty(t, allocatable.GetDevices())

	withPods, _ := serve(t, podresources.Options{Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) {
		return []device.Pod{pod("p", 1)}, nil
	})})
	pods, err = list(t.Context(), withPods)
	require.NoError(t, err)
	assert.Equal(t, []string{"p main"}, pods, "without Devices, no pod waits for devices")
}

func TestRateLimitIsSharedByAllMethodsAndClients(t *testing.T) {
	rejected := make(chan string, 100)
	o := podresources.Options{Socket: tempSocket(t), Rate: 1, Burst: 10, Hooks: podresources.Hooks{
		RequestRejected: func(version, method string) { rejected <- version + " " + method },
	}}
	first, _ := serve(t, o)
	second := dial(t, o.Socket)
	var errs []error
	for range 10 {
		_, err := list(t.Context(), first)
		errs = append(errs, err)
		_, err = v1alpha1.NewPodResourcesListerClient(second).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
		errs = append(errs, err)
	}
	for _, err := range errs[:10] {
		assert.NoError(t, err)
	}
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	require.NotEmpty(t, failed)
	for _, err := range failed {
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, "rejected by rate limit", status.Convert(err).Message())
	}
	assert.Len(t, rejected, len(failed))
}

// Clients that list all the time see a pod only with all its devices, while pods are added, reserved and removed.
func TestListBesideChanges(t *testing.T) {
	n := &node{}
	conn, _ := serve(t, podresources.Options{Pods: n, Devices: n, Rate: -1})
	_, err := list(t.Context(), conn)
	require.NoError(t, err)
	stopped := make(chan struct{})
	var changes, lists sync.WaitGroup
	changes.Go(func() {
		ticker := time.NewTicker(500 * time.Microsecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stopped:
				return
			case <-ticker.C:
			}
			p := pod(fmt.Sprintf("p%d", i), 2)
			n.addPod(p)
			if i > 0 { // the newest pod is always without devices
				n.reserve(fmt.Sprintf("uid-p%d", i-1), device.Device{ID: "a", Nodes: 1}, device.Device{ID: "b"})
			}
			if i >= 20 {
				n.releaseAndRemove()
			}
		}
	})
	const clients, requests = 4, 1000
	started := time.Now()
	seen := make([]map[string]bool, clients)
	for i := range clients {
		seen[i] = map[string]bool{}
		lists.Go(func() {
			for range requests {
				pods, err := list(t.Context(), conn)
				if !assert.NoError(t, err) {
					return
				}
				for _, p := range pods {
					name, devices, _ := strings.Cut(p, " ")
					seen[i][name] = true
					assert.Equal(t, "main a@0 b", devices)
				}
			}
		})
	}
	lists.Wait()
	t.Logf("%.0f lists per second, %d pods seen by the first client", clients*requests/time.Since(started).Seconds(), len(seen[0]))
	close(stopped)
	changes.Wait()
	assert.Greater(t, len(seen[0]), 20)
}
