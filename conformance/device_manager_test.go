// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
)

// outOfOrder is the error of a plugin that fails.
const outOfOrder = "rpc error: code = Unknown desc = out of order"

// stepsPerNode is the number of random steps on one node.
const stepsPerNode = 40

// The device and topology managers of a kubelet and our allocator take the same steps on the same nodes: plugins come, list, fail and go, pods come and go,
// time passes, the agent restarts. After each step they agree on capacity, allocatable and removed resources, on the devices of every container, on refusals
// word by word, and on the config of containers. Our reader understands each checkpoint of the kubelet.
//
// The plugins prefer the devices with the highest IDs, because of equally good devices the kubelet takes any. Documented exceptions: after a restart, pods do
// not wait and are not refused; missing devices refuse a pod before a plugin is asked; a container whose plugin is gone starts again; a pod runs on without
// a resource whose plugin registers later. Others are leftovers of the kubelet: see isLeftover and limitsRemoved.
func TestDeviceManager(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "conformance") // each step writes a checkpoint and a record
	if err != nil {
		root = t.TempDir()
	}
	defer os.RemoveAll(root)
	seed := flags.Seed()
	for i := range max(1, flags.Inputs()/stepsPerNode) {
		choices := func(step int) *conformance.Choices {
			return conformance.NewChoices(conformance.RandomBytes(seed, uint64(i*1000+step)))
		}
		dir := filepath.Join(root, fmt.Sprint(i))
		synctest.Test(t, func(t *testing.T) {
			n := newDeviceNode(t, choices(0), dir)
			defer func() { n.stop() }()
			for step := range stepsPerNode {
				n.c = choices(step + 1)
				n.step()
				n.compare()
			}
		})
		require.False(t, t.Failed(), "node %d of seed %d", i, seed)
		require.NoError(t, os.RemoveAll(dir))
	}
}

// deviceNode is one node of both sides.
type deviceNode struct {
	t       *testing.T
	c       *conformance.Choices
	kubelet *devicemanager.ConformanceNode
	ours    *device.Allocator
	opts    device.Options
	stop    func()
	plugins map[string]*bothPlugin // connected plugins by resource
	failing map[string]bool        // resources whose Allocate fails
	pods    []*corev1.Pod
	next    int
	log     []string
}

// bothPlugin is a plugin of both sides.
type bothPlugin struct {
	kubelet *devicemanager.ConformancePlugin
	feed    device.Feed
}

var deviceResources = []string{"example.com/a", "example.com/b", "example.com/c"}

func newDeviceNode(t *testing.T, c *conformance.Choices, dir string) *deviceNode {
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubelet"), 0o700))
	n := &deviceNode{t: t, c: c, plugins: map[string]*bothPlugin{}, failing: map[string]bool{}}
	n.opts = device.Options{
		Record:   filepath.Join(dir, "record"),
		Topology: device.Topology{Policy: device.Policy(c.Int(4)), PodScope: c.OneIn(2), Nodes: numaNodes(1 + c.Int(4))},
		Kubelet:  device.Kubelet{NoWait: true, RunWithout: true, IgnoreConflicts: true, AssumeHealthy: true},
	}
	var err error
	n.kubelet, err = devicemanager.NewConformanceNode(filepath.Join(dir, "kubelet"), len(n.opts.Topology.Nodes), n.opts.Topology.Policy.String(), n.scope())
	require.NoError(t, err)
	n.open()
	return n
}

// numaNodes returns the NUMA nodes of a machine that has count of them.
func numaNodes(count int) (nodes []device.NUMANode) {
	for id := range count {
		nodes = append(nodes, device.NUMANode{ID: id})
	}
	return nodes
}

func (n *deviceNode) scope() string {
	if n.opts.Topology.PodScope {
		return "pod"
	}
	return "container"
}

// open starts our allocator.
func (n *deviceNode) open() {
	var err error
	n.ours, err = device.New(n.opts)
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func(a *device.Allocator) { done <- a.Run(ctx) }(n.ours)
	n.stop = func() { cancel(); require.NoError(n.t, <-done) }
}

// step takes one step on both sides.
func (n *deviceNode) step() {
	name := deviceResources[n.c.Int(len(deviceResources))]
	switch op := n.c.Int(16); {
	case n.plugins[name] == nil && op < 6, op == 0 && n.plugins[name] == nil:
		n.connect(name)
	case op < 8:
		n.admit()
	case op < 11:
		n.remove()
	case op < 13 && n.plugins[name] != nil:
		n.list(name)
	case op == 13 && n.plugins[name] != nil:
		n.note("disconnect %s", name)
		n.kubelet.Disconnect(n.plugins[name].kubelet)
		n.plugins[name].feed.Close()
		delete(n.plugins, name)
	case op == 14:
		n.note("Allocate of %s fails: %v", name, !n.failing[name])
		n.failing[name] = !n.failing[name]
	case op == 15 && n.c.OneIn(2):
		n.restart()
	default:
		pause := time.Duration(1+n.c.Int(7)) * time.Minute
		n.note("%v pass", pause)
		time.Sleep(pause)
	}
	synctest.Wait()
}

func (n *deviceNode) note(format string, args ...any) {
	n.log = append(n.log, fmt.Sprintf(format, args...))
}

// fail ends the test with the steps so far.
func (n *deviceNode) fail(format string, args ...any) {
	n.t.Helper()
	n.t.Fatalf("%s\n%+v\n%s", fmt.Sprintf(format, args...), n.opts.Topology, strings.Join(n.log, "\n"))
}

func (n *deviceNode) connect(name string) {
	n.note("connect %s", name)
	p := &bothPlugin{kubelet: &devicemanager.ConformancePlugin{Name: name, Socket: "/" + name, Prefer: preferHighest}}
	p.kubelet.Response = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		if n.failing[name] {
			return nil, errors.New(outOfOrder)
		}
		return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{name: strings.Join(slices.Sorted(slices.Values(ids)), ",")}}, nil
	}
	require.NoError(n.t, n.kubelet.Connect(n.t.Context(), p.kubelet))
	feed, err := n.ours.Connect(name, "/"+name, ourPlugin{p.kubelet})
	require.NoError(n.t, err)
	p.feed = feed
	n.plugins[name] = p
	n.list(name)
}

// list lists devices on random NUMA nodes.
func (n *deviceNode) list(name string) {
	var ours []device.Device
	var theirs []*pluginapi.Device
	for i := range n.c.Int(9) {
		d := device.Device{ID: fmt.Sprint("d", i), Healthy: !n.c.OneIn(6)}
		if !n.c.OneIn(4) {
			d.Nodes = 1 << n.c.Int(len(n.opts.Topology.Nodes))
			if n.c.OneIn(5) {
				d.Nodes |= 1 << n.c.Int(len(n.opts.Topology.Nodes))
			}
		}
		ours, theirs = append(ours, d), append(theirs, toPluginDevice(d))
	}
	n.note("list %s %+v", name, ours)
	n.kubelet.List(n.plugins[name].kubelet, theirs)
	require.NoError(n.t, n.plugins[name].feed.Update(ours))
}

// toPluginDevice converts a device to the type of the plugin API.
func toPluginDevice(d device.Device) *pluginapi.Device {
	out := &pluginapi.Device{ID: d.ID, Health: pluginapi.Unhealthy}
	if d.Healthy {
		out.Health = pluginapi.Healthy
	}
	if d.Nodes != 0 {
		out.Topology = &pluginapi.TopologyInfo{}
	}
	for node := range d.Nodes.Nodes() {
		out.Topology.Nodes = append(out.Topology.Nodes, &pluginapi.NUMANode{ID: int64(node)})
	}
	return out
}

// admit admits a random pod. No limit is zero: the kubelet refuses such a pod if the resource has no healthy device. A container limits one resource, so that the order of resources, which is random in the kubelet, has no effect.
func (n *deviceNode) admit() {
	n.next++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("pod", n.next)), Name: fmt.Sprint("pod", n.next), Namespace: "default"}}
	limits := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceName(deviceResources[n.c.Int(3)]): *resource.NewQuantity(int64(1+n.c.Int(3)), resource.DecimalSI),
		}}
	}
	if n.c.OneIn(4) {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "sidecar", RestartPolicy: &always, Resources: limits()})
	}
	for i := range 1 + n.c.Int(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: limits()})
	}
	if n.c.OneIn(3) {
		// The first container reuses all devices of the init container: of more, the kubelet reuses any.
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init", Resources: *pod.Spec.Containers[0].Resources.DeepCopy()})
	}
	reason, message := n.kubelet.Admit(n.t.Context(), pod)
	converted, err := poddevice.FromPod(pod)
	require.NoError(n.t, err)
	err = n.ours.Reserve(n.t.Context(), converted)
	n.note("admit %s: kubelet %q, ours %v", describeLimits(pod), message, err)
	refusal, refused := errors.AsType[*device.Refusal](err)
	switch {
	case err == nil && reason == "":
		n.pods = append(n.pods, pod)
	case n.isLeftover(message), reason == device.ReasonTopologyAffinityError && n.limitsRemoved(converted):
		require.NoError(n.t, n.ours.Release(string(pod.UID)))
	case refused && strings.Contains(message, outOfOrder):
		// A later container may have no devices: ours chooses the devices of all containers before it calls a plugin.
	case !refused || refusal.Reason != reason || refusal.Message != message:
		n.fail("kubelet: %s %s\nours:    %v", reason, message, err)
	}
}

// isLeftover reports whether the kubelet refuses a pod for a removed resource of which no pod holds a device. It has then kept an empty entry of the resource.
// Without that, its pods run without the resource, as ours do.
func (n *deviceNode) isLeftover(message string) bool {
	_, rest, found := strings.Cut(message, "cannot allocate unregistered device ")
	name, _, _ := strings.Cut(rest, ",")
	for _, containers := range n.ours.Allocations() {
		for _, held := range containers {
			if len(held[name]) > 0 {
				return false
			}
		}
	}
	return found
}

// limitsRemoved reports whether a pod limits a removed resource. The kubelet keeps the devices of such a resource for its hints, until it restarts, and finds none
// that is free.
func (n *deviceNode) limitsRemoved(pod device.Pod) bool {
	return slices.ContainsFunc(n.ours.Resources(), func(r device.Resource) bool {
		return r.Removed && slices.ContainsFunc(pod.Containers, func(c device.Container) bool { return c.Limits[r.Name] > 0 })
	})
}

func describeLimits(pod *corev1.Pod) string {
	text := string(pod.UID)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, q := range c.Resources.Limits {
			text += fmt.Sprintf(" %s:%s=%d", c.Name, name, q.Value())
		}
	}
	return text
}

func (n *deviceNode) remove() {
	if len(n.pods) == 0 {
		return
	}
	at := n.c.Int(len(n.pods))
	uid := string(n.pods[at].UID)
	n.note("remove %s", uid)
	n.pods = slices.Delete(n.pods, at, at+1)
	n.kubelet.Remove(uid)
	require.NoError(n.t, n.ours.Release(uid))
}

// restart restarts both agents; the plugins have to register again.
func (n *deviceNode) restart() {
	n.note("restart")
	require.NoError(n.t, n.kubelet.Restart(n.opts.Topology.Policy.String(), n.scope()))
	n.stop()
	n.open()
	n.plugins = map[string]*bothPlugin{}
}

// compare compares the state of both sides.
func (n *deviceNode) compare() {
	capacity, allocatable, removed := n.kubelet.Capacity()
	theirs, ours := map[string]string{}, map[string]string{}
	for name, q := range capacity {
		free := allocatable[name]
		theirs[string(name)] = fmt.Sprintf("%d/%d", q.Value(), free.Value())
	}
	for _, name := range removed {
		theirs[name] = "0/0"
	}
	for _, r := range n.ours.Resources() {
		// The kubelet names a removed resource once.
		if _, named := theirs[r.Name]; named || !r.Removed {
			ours[r.Name] = fmt.Sprintf("%d/%d", r.Capacity, r.Allocatable)
		}
	}
	if !maps.Equal(theirs, ours) {
		n.fail("capacity: kubelet %v, ours %v", theirs, ours)
	}
	allocations := n.ours.Allocations()
	for _, pod := range n.pods {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			held := map[string][]string{}
			for name, devices := range allocations[string(pod.UID)][c.Name] {
				for _, d := range devices {
					held[name] = append(held[name], d.ID)
				}
				slices.Sort(held[name])
			}
			theirs := n.kubelet.Devices(string(pod.UID), c.Name)
			if !maps.EqualFunc(theirs, held, slices.Equal) {
				n.fail("devices of %s of %s: kubelet %v, ours %v", c.Name, pod.UID, theirs, held)
			}
			n.compareConfig(pod, &c)
		}
	}
	n.compareCheckpoint()
}

// compareConfig compares what the config of a container gets.
func (n *deviceNode) compareConfig(pod *corev1.Pod, c *corev1.Container) {
	theirs := map[string]string{}
	for name, limit := range c.Resources.Limits {
		if limit.Value() > 0 && n.ours.Allocations()[string(pod.UID)][c.Name][string(name)] == nil {
			return // the container runs without the resource; the kubelet would allocate now
		}
	}
	options, err := n.kubelet.RunOptions(n.t.Context(), pod, c)
	if err != nil && strings.Contains(err.Error(), "endpoint not found in cache") {
		return // the plugin has been gone for five minutes: the container cannot start again in the kubelet, but in ours
	}
	require.NoError(n.t, err)
	if options != nil {
		for _, v := range options.Envs {
			theirs[v.Name] = v.Value
		}
	}
	response, err := n.ours.Start(n.t.Context(), string(pod.UID), c.Name)
	require.NoError(n.t, err)
	if !maps.Equal(theirs, response.Env) && len(theirs)+len(response.Env) > 0 {
		n.fail("environment of %s of %s: kubelet %v, ours %v", c.Name, pod.UID, theirs, response.Env)
	}
}

// compareCheckpoint compares the kubelet's checkpoint, as our reader understands it, with what our pods hold.
func (n *deviceNode) compareCheckpoint() {
	previous, err := plugin.ReadCheckpoint(n.kubelet.CheckpointFile())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(n.t, err)
	held := n.ours.Allocations()
	for _, claim := range previous.Claims {
		if held[claim.PodUID] == nil {
			continue // the kubelet writes a removal with its next change
		}
		count := len(held[claim.PodUID][claim.Container][claim.Resource])
		if len(claim.Devices) != count {
			n.fail("checkpoint: %s %s has %d devices of %s, ours %d", claim.PodUID, claim.Container, len(claim.Devices), claim.Resource, count)
		}
	}
}

// ourPlugin is a plugin of the kubelet's side for our allocator.
type ourPlugin struct {
	p *devicemanager.ConformancePlugin
}

func (o ourPlugin) Options() device.PluginOptions { return device.PluginOptions{Preferred: true} }

func (o ourPlugin) Preferred(_ context.Context, open, chosen []string, count int) ([]string, error) {
	return o.p.Prefer(slices.Concat(open, chosen), chosen, count), nil
}

func (o ourPlugin) Allocate(_ context.Context, ids []string) (device.Response, error) {
	answer, err := o.p.Response(ids)
	if err != nil {
		return device.Response{}, err
	}
	return device.Response{Env: answer.GetEnvs(), Mounts: []cri.Mount{}}, nil
}

func (o ourPlugin) PreStart(context.Context, []string) error { return nil }
