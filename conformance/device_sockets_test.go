// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
)

const (
	inputsPerSocketNode = 5_000       // one node for this number of inputs
	socketTimeout       = time.Minute // limits the wait for each event
)

// Device plugins on sockets register at the kubelet's device manager and at our plugin.Host, and both take the same steps: plugins come, list, fail, end their
// stream and stop, pods come and go, agents restart, and ours continues from the checkpoint of the kubelet. After each step, when both have processed the lists,
// they agree on capacity and allocatable, on the devices of every container with NUMA nodes and health, on errors word by word, on the config of
// containers, and on the responses of podresources. Our reader understands the checkpoint.
//
// The exceptions are those of TestDeviceManager. No resource is removed, because the clock is real.
func TestDeviceManagerSockets(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "conf") // short, for paths of sockets
	if err != nil {
		root = t.TempDir()
	}
	defer os.RemoveAll(root)
	seed := flags.Seed()
	for i := range max(1, flags.Inputs()/inputsPerSocketNode) {
		choices := func(step int) *conformance.Choices {
			return conformance.NewChoices(conformance.RandomBytes(seed, uint64(i*1000+step)))
		}
		dir := filepath.Join(root, fmt.Sprint(i))
		t.Run(fmt.Sprintf("node %d of seed %d", i, seed), func(t *testing.T) {
			n := newSocketNode(t, choices(0), dir)
			defer func() { n.stop() }()
			for step := range stepsPerNode {
				n.c = choices(step + 1)
				n.step()
				n.compare()
			}
		})
		if t.Failed() {
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	}
}

// socketNode is one node of both sides.
type socketNode struct {
	t           *testing.T
	c           *conformance.Choices
	dir         string
	kubelet     *devicemanager.ConformanceNode
	ours        *poddevice.Devices
	counts      *devicemanager.ConformanceCounts // of ours
	opts        device.Options
	stop        func() // stops both agents and all plugins
	kubeletConn *grpc.ClientConn
	oursConn    *grpc.ClientConn
	resources   [2]podresourcesv1.PodResourcesListerClient // of the kubelet and ours

	plugins               map[string][]*socketPlugin // connected plugins by resource, the newest last
	failing               map[string]bool            // resources whose Allocate and PreStartContainer fail
	lists, disconnections int64                      // that both agents process since they started
	next                  int
	log                   []string
}

func newSocketNode(t *testing.T, c *conformance.Choices, dir string) *socketNode {
	n := &socketNode{t: t, c: c, dir: dir, failing: map[string]bool{}}
	require.NoError(t, os.MkdirAll(n.kubeletDir(), 0o750))
	require.NoError(t, os.MkdirAll(n.oursDir(), 0o750))
	n.opts = device.Options{
		Record:   filepath.Join(dir, "record"),
		Previous: func() (device.Previous, error) { return plugin.ReadCheckpoint(n.kubelet.CheckpointFile()) },
		Export:   plugin.ExportTo(n.exported()),
		Topology: device.Topology{Policy: device.Policy(c.Int(4)), PodScope: c.OneIn(2), Nodes: numaNodes(1 + c.Int(4))},
		Kubelet:  device.Kubelet{NoWait: true, RunWithout: true, IgnoreConflicts: true, AssumeHealthy: true},
	}
	var err error
	n.kubelet, err = devicemanager.NewConformanceSocketNode(n.kubeletDir(), len(n.opts.Topology.Nodes), n.opts.Topology.Policy.String(), n.scope())
	require.NoError(t, err)
	n.open()
	return n
}

func (n *socketNode) kubeletDir() string { return filepath.Join(n.dir, "kubelet") }
func (n *socketNode) oursDir() string    { return filepath.Join(n.dir, "ours") }

// exported returns the path of our checkpoint for a kubelet.
func (n *socketNode) exported() string {
	return filepath.Join(n.dir, "exported", plugin.CheckpointName)
}

func (n *socketNode) scope() string {
	if n.opts.Topology.PodScope {
		return "pod"
	}
	return "container"
}

// open starts our agent, and the podresources servers of both. The kubelet's device manager runs already.
func (n *socketNode) open() {
	var err error
	n.ours, err = poddevice.New(poddevice.Options{Allocator: n.opts})
	require.NoError(n.t, err)
	n.counts = &devicemanager.ConformanceCounts{}
	host, err := plugin.New(plugin.Options{Dir: n.oursDir(), Receiver: countingReceiver{n.ours.Allocator(), n.counts}})
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(n.t, n.ours.Run(ctx)) })
	running.Go(func() { assert.NoError(n.t, host.Run(ctx)) })
	n.kubeletConn, n.oursConn = dialSocket(n.t, filepath.Join(n.kubeletDir(), "kubelet.sock")), dialSocket(n.t, filepath.Join(n.oursDir(), "kubelet.sock"))
	var stopTheirs, stopOurs func()
	n.resources[0], stopTheirs = serveKubeletResources(n.t, n.kubelet, filepath.Join(n.dir, "kr.sock"))
	n.resources[1], stopOurs = serveOurResources(n.t, n.ours.Allocator(), func() []*corev1.Pod { return n.kubelet.Active }, filepath.Join(n.dir, "or.sock"))
	n.plugins, n.lists, n.disconnections = map[string][]*socketPlugin{}, 0, 0
	n.stop = func() {
		stopTheirs()
		stopOurs()
		assert.NoError(n.t, errors.Join(n.kubeletConn.Close(), n.oursConn.Close()))
		assert.NoError(n.t, n.kubelet.Stop())
		cancel()
		running.Wait()
		for _, plugins := range n.plugins {
			for _, p := range plugins {
				p.stop()
			}
		}
	}
}

// countingReceiver passes plugins to an allocator, and counts their lists and disconnections.
type countingReceiver struct {
	receiver plugin.Receiver
	counts   *devicemanager.ConformanceCounts
}

func (r countingReceiver) Connect(resource, socket string, p device.Plugin) (device.Feed, error) {
	feed, err := r.receiver.Connect(resource, socket, p)
	return countingFeed{feed, r.counts}, err
}

type countingFeed struct {
	feed   device.Feed
	counts *devicemanager.ConformanceCounts
}

func (f countingFeed) Update(devices []device.Device) error {
	defer f.counts.Lists.Add(1)
	return f.feed.Update(devices)
}

func (f countingFeed) Close() {
	f.feed.Close()
	f.counts.Disconnections.Add(1)
}

// step takes one step on both sides, and waits until both have processed it.
func (n *socketNode) step() {
	name := deviceResources[n.c.Int(len(deviceResources))]
	plugins := n.plugins[name]
	switch op := n.c.Int(16); {
	case len(plugins) == 0 && op < 6, len(plugins) == 1 && op == 0:
		n.connect(name)
	case op < 8:
		n.admit()
	case op < 10:
		n.remove()
	case op < 12 && len(plugins) > 0:
		p := plugins[n.c.Int(len(plugins))]
		p.list(n.makeDevices(p))
		n.lists++
	case op < 14 && len(plugins) > 0:
		n.disconnect(name, n.c.Int(len(plugins)))
	case op == 14:
		n.fails(name)
	case op == 15 && n.c.OneIn(2):
		n.restart()
	case op == 15:
		n.registerInvalid(name)
	default:
		n.admit()
	}
	n.settle()
}

// settle waits until both sides have processed all lists and disconnections.
func (n *socketNode) settle() {
	for side, counts := range map[string]*devicemanager.ConformanceCounts{"kubelet": n.kubelet.Counts(), "ours": n.counts} {
		awaitCount(n.t, side+" lists", &counts.Lists, n.lists)
		awaitCount(n.t, side+" disconnections", &counts.Disconnections, n.disconnections)
	}
}

// awaitCount waits until a count has a value.
func awaitCount(t testing.TB, what string, count *atomic.Int64, value int64) {
	if count.Load() != value {
		require.Eventually(t, func() bool { return count.Load() == value }, socketTimeout, time.Millisecond, "%s: not %d", what, value)
	}
}

func (n *socketNode) note(format string, args ...any) {
	n.log = append(n.log, fmt.Sprintf(format, args...))
}

// fail ends the test with the steps so far.
func (n *socketNode) fail(format string, args ...any) {
	n.t.Helper()
	n.t.Fatalf("%s\n%+v\n%s", fmt.Sprintf(format, args...), n.opts.Topology, strings.Join(n.log, "\n"))
}

// connect registers a plugin on both sides. A resource has up to two plugins, as during an upgrade.
func (n *socketNode) connect(name string) {
	endpoint := name[strings.Index(name, "/")+1:] + "0.sock"
	if len(n.plugins[name]) > 0 && n.plugins[name][0].endpoint == endpoint {
		endpoint = strings.Replace(endpoint, "0", "1", 1)
	}
	n.note("register %s at %s", endpoint, name)
	p := &socketPlugin{resource: name, endpoint: endpoint, failing: n.failing[name], options: &pluginapi.DevicePluginOptions{
		GetPreferredAllocationAvailable: true, PreStartRequired: name == deviceResources[2],
	}}
	p.devices = n.makeDevices(p)
	p.serve(n.t, n.kubeletDir(), n.oursDir())
	require.NoError(n.t, p.register(n.t.Context(), n.kubeletConn))
	require.NoError(n.t, p.register(n.t.Context(), n.oursConn))
	n.plugins[name] = append(n.plugins[name], p)
	n.lists++
}

// makeDevices returns no or 4 to 11 devices on random NUMA nodes.
func (n *socketNode) makeDevices(p *socketPlugin) (devices []*pluginapi.Device) {
	count := 4 + n.c.Int(8)
	if n.c.OneIn(8) {
		count = 0
	}
	for i := range count {
		d := &pluginapi.Device{ID: fmt.Sprint("d", i), Health: pluginapi.Healthy}
		if n.c.OneIn(6) {
			d.Health = conformance.Pick(n.c, pluginapi.Unhealthy, "", "healthy")
		}
		if !n.c.OneIn(4) {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(n.c.Int(len(n.opts.Topology.Nodes)))}}}
			if second := int64(n.c.Int(len(n.opts.Topology.Nodes))); n.c.OneIn(5) && second != d.Topology.Nodes[0].ID {
				d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: second})
			}
		}
		devices = append(devices, d)
	}
	n.note("%s lists %v", p.endpoint, devices)
	return devices
}

// disconnect stops a plugin, or ends its streams and registers it again.
func (n *socketNode) disconnect(name string, at int) {
	p := n.plugins[name][at]
	n.plugins[name] = slices.Delete(n.plugins[name], at, at+1)
	n.disconnections++
	if again := n.c.OneIn(3); !again {
		n.note("stop %s", p.endpoint)
		p.stop()
		return
	}
	n.note("end the streams of %s and register again", p.endpoint)
	p.endStreams()
	n.settle() // the kubelet refuses a second registration of a connected socket
	require.NoError(n.t, p.register(n.t.Context(), n.kubeletConn))
	require.NoError(n.t, p.register(n.t.Context(), n.oursConn))
	n.plugins[name] = append(n.plugins[name], p)
	n.lists++
}

// fails changes at random whether the plugins of a resource fail.
func (n *socketNode) fails(name string) {
	n.failing[name] = n.c.OneIn(3)
	n.note("plugins of %s fail: %v", name, n.failing[name])
	for _, p := range n.plugins[name] {
		p.setFailing(n.failing[name])
	}
}

// registerInvalid makes a registration that both sides refuse with one error.
func (n *socketNode) registerInvalid(name string) {
	request := &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: "invalid.sock", ResourceName: name}
	switch n.c.Int(3) {
	case 0:
		request.Version = conformance.Pick(n.c, "", "v1alpha", "v1beta2", "v1beta1 ")
	case 1:
		request.ResourceName = conformance.Pick(n.c, "", "cpu", "a", "kubernetes.io/a", "x.kubernetes.io/a", "requests.example.com/a", "example.com/", "a/b/c", "/")
	default:
		p := &socketPlugin{endpoint: request.Endpoint, optionsErr: errors.New("no options")}
		p.serve(n.t, n.kubeletDir(), n.oursDir())
		defer p.stop()
	}
	_, theirs := pluginapi.NewRegistrationClient(n.kubeletConn).Register(n.t.Context(), request)
	_, ours := pluginapi.NewRegistrationClient(n.oursConn).Register(n.t.Context(), request)
	n.note("register %v: %v", request, theirs)
	if theirs == nil || ours == nil || theirs.Error() != ours.Error() {
		n.fail("registration: kubelet %v, ours %v", theirs, ours)
	}
}

// restart restarts both agents; the plugins stop, and have to register again. Each may continue from the checkpoint of the other.
func (n *socketNode) restart() {
	takeover, giveBack := n.c.OneIn(2), n.c.OneIn(2)
	n.note("restart; ours from the kubelet's checkpoint: %v; the kubelet from ours: %v", takeover, giveBack)
	n.stop()
	if takeover {
		require.NoError(n.t, os.RemoveAll(n.opts.Record))
	}
	if content, err := os.ReadFile(n.exported()); giveBack && err == nil {
		require.NoError(n.t, os.WriteFile(n.kubelet.CheckpointFile(), content, 0o600))
	}
	require.NoError(n.t, n.kubelet.Restart(n.opts.Topology.Policy.String(), n.scope()))
	n.open()
	require.NoError(n.t, n.ours.Allocator().Retain(func(uid string) bool { // the kubelet frees the devices of other pods when it needs them
		return slices.ContainsFunc(n.kubelet.Active, func(pod *corev1.Pod) bool { return string(pod.UID) == uid })
	}))
}
