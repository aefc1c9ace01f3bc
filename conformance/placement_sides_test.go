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
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	cmqos "k8s.io/kubernetes/pkg/kubelet/cm/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// placementSide is one of the two implementations.
type placementSide interface {
	start(running [][2]string) error // also again; running has the UIDs and names of the containers that run
	connect(resource int)
	list(resource int, devices []device.Device)
	fail(resource int, failing bool)
	ready()                       // all sources have listed their pods
	admit(pod *corev1.Pod) string // the refusal, or ""
	remove(pod *corev1.Pod)       // the pod is refused or over
	launch(pod *corev1.Pod, container *corev1.Container) containerPlace
	place(pod *corev1.Pod, container *corev1.Container) containerPlace
	placePod(pod *corev1.Pod) containerPlace // of a pod whose containers divide what it has
	shared() string
	stop()
}

// containerPlace is what a container has, or the config with which it starts.
type containerPlace struct{ cpus, memory, devices string }

// newPlacementPlugin returns a plugin that prefers the devices with the highest IDs: of equally good devices, the kubelet takes any. Its Allocate returns an
// error while failing is true.
func newPlacementPlugin(name string, failing *bool) *devicemanager.ConformancePlugin {
	return &devicemanager.ConformancePlugin{
		Name: name, Socket: "/" + name, Prefer: preferHighest,
		Response: func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
			if *failing {
				return nil, errors.New("the plugin fails")
			}
			return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{name: strings.Join(slices.Sorted(slices.Values(ids)), ",")}}, nil
		},
	}
}

// kubeletPlacement has the topology manager of a kubelet, and its managers of devices, CPUs and memory.
type kubeletPlacement struct {
	in       *placementInput
	devices  *devicemanager.ConformanceNode
	plugins  []*devicemanager.ConformancePlugin
	failing  [8]bool // by resource
	topology topologymanager.Manager
	cpus     cpumanager.Manager
	cpuState cpustate.State
	memory   memorymanager.Manager
	memState memorystate.State
	unready  bool // no source has listed its pods
	watched  bool // mixed is wanted
	mixed    bool // a node served two sets of nodes
	held     bool // a pod that was refused after a restart held what some of its containers had got, until all pods were admitted again
}

// AddSource and AllReady implement the kubelet's interface of sources.
func (k *kubeletPlacement) AddSource(string) {}
func (k *kubeletPlacement) AllReady() bool   { return !k.unready }

// kubeletMachineInfo converts a machine to the kubelet's type.
func kubeletMachineInfo(machine *topology.Machine) *cadvisorapi.MachineInfo {
	info := kubeletMachine(machine)
	info.NumCores = len(machine.CPUs)
	sockets, cores := map[int]bool{}, map[int]*cadvisorapi.Core{}
	for i := range machine.CPUs {
		c := &machine.CPUs[i]
		sockets[c.Socket] = true
		if cores[c.Core] != nil {
			cores[c.Core].Threads = append(cores[c.Core].Threads, c.ID)
			continue
		}
		node := &info.Topology[slices.IndexFunc(info.Topology, func(n cadvisorapi.Node) bool { return n.Id == c.Node })]
		if node.Cores == nil {
			node.Cores = make([]cadvisorapi.Core, 0, len(machine.CPUs)) // so that the pointers in cores stay valid
		}
		node.Cores = append(node.Cores, cadvisorapi.Core{Id: c.Core, SocketID: c.Socket, Threads: []int{c.ID}, UncoreCaches: []cadvisorapi.Cache{{Id: c.Cache}}})
		cores[c.Core] = &node.Cores[len(node.Cores)-1]
	}
	info.NumSockets = len(sockets)
	return info
}

// start creates the managers in the order of the kubelet's container manager.
func (k *kubeletPlacement) start(running [][2]string) (err error) {
	in, info := k.in, kubeletMachineInfo(&k.in.Machine)
	scope := "container"
	if in.Topology.PodScope {
		scope = "pod"
	}
	if k.topology, err = topologymanager.NewManager(klog.Logger{}, info.Topology, in.Topology.Policy.String(), scope, in.Topology.Options); err != nil {
		return err
	}
	if k.devices == nil {
		k.devices = devicemanager.NewConformancePlacement(info.Topology)
		k.cpuState, k.memState = cpustate.NewMemoryState(klog.Logger{}), memorystate.NewMemoryState(klog.Logger{})
	} else {
		k.unready = true
	}
	if err := k.devices.StartWith(k.topology, k, running); err != nil {
		return err
	}
	reservation := corev1.ResourceList{}
	if in.CPUs.ReservedMillis > 0 {
		reservation[corev1.ResourceCPU] = *resource.NewMilliQuantity(in.CPUs.ReservedMillis, resource.DecimalSI)
	}
	var reserved []kubeletconfig.MemoryReservation
	for _, r := range in.Memory.ReservedMemory {
		reserved = append(reserved, kubeletconfig.MemoryReservation{NumaNode: int32(r.Node), Limits: corev1.ResourceList{corev1.ResourceMemory: r.Limits[numa.Memory]}})
	}
	reservation[corev1.ResourceMemory] = in.Memory.SystemReserved[numa.Memory]
	if k.cpus, err = cpumanager.NewManager(klog.Logger{}, in.CPUs.Policy, in.CPUs.Options, time.Second, info, toKubeletSet(in.CPUs.ReservedCPUs), reservation, "", k.topology); err != nil {
		return err
	}
	k.topology.AddHintProvider(klog.Logger{}, k.cpus)
	if k.memory, err = memorymanager.NewManager(klog.Logger{}, in.Memory.Policy, info, reservation, reserved, "", k.topology); err != nil {
		return err
	}
	k.topology.AddHintProvider(klog.Logger{}, k.memory)
	if err := cpumanager.ConformanceStart(k.cpus, k.cpuState, k.devices.ActivePods, k); err != nil {
		return err
	}
	return memorymanager.ConformanceStart(k.memory, k.memState, k.devices.ActivePods, k)
}

func (k *kubeletPlacement) connect(resource int) {
	p := newPlacementPlugin(deviceResources[resource], &k.failing[resource])
	if resource == 0 {
		k.plugins = nil
	}
	k.plugins = append(k.plugins, p)
	if err := k.devices.Connect(context.Background(), p); err != nil {
		panic(err)
	}
}

func (k *kubeletPlacement) list(resource int, devices []device.Device) {
	var list []*pluginapi.Device
	for _, d := range devices {
		list = append(list, toPluginDevice(d))
	}
	k.devices.List(k.plugins[resource], list)
}

func (k *kubeletPlacement) fail(resource int, failing bool) { k.failing[resource] = failing }

func (k *kubeletPlacement) ready() {
	k.unready = false
	k.clean()
}

// clean frees what inactive pods have, as the kubelet does in its loops and before an admission.
func (k *kubeletPlacement) clean() {
	k.devices.Clean()
	cpumanager.ConformanceClean(k.cpus)
	memorymanager.ConformanceClean(k.memory)
}

func (k *kubeletPlacement) admit(pod *corev1.Pod) string {
	uid := string(pod.UID)
	before := len(k.memState.GetMemoryAssignments()[uid]) + len(k.cpuState.GetCPUAssignments()[uid])
	reason, message := k.devices.Admit(context.Background(), pod)
	k.held = k.held || k.unready && reason != "" && len(k.memState.GetMemoryAssignments()[uid])+len(k.cpuState.GetCPUAssignments()[uid]) > before
	k.mixed = k.mixed || k.watched && isMixed(ourBlocks(k.memState.GetMemoryAssignments()))
	if reason == "" {
		return ""
	}
	return reason + ": " + hideType(message)
}

func (k *kubeletPlacement) remove(pod *corev1.Pod) {
	k.devices.Remove(string(pod.UID))
	k.clean()
}

// launch does what PreCreateContainer and PreStartContainer do.
func (k *kubeletPlacement) launch(pod *corev1.Pod, container *corev1.Container) containerPlace {
	var ids []string
	for _, id := range slices.Sorted(slices.Values(k.memory.GetMemoryNUMANodes(klog.Logger{}, pod, container).UnsortedList())) {
		ids = append(ids, fmt.Sprint(id))
	}
	place := containerPlace{cpus: k.cpus.GetCPUAffinity(string(pod.UID), container.Name).String(), memory: strings.Join(ids, ",")}
	options, err := k.devices.RunOptions(context.Background(), pod, container)
	if err != nil {
		panic(err)
	}
	if options != nil {
		for _, v := range options.Envs {
			place.devices += v.Name + "=" + v.Value
		}
	}
	id := string(pod.UID) + "/" + container.Name
	k.cpus.AddContainer(klog.Logger{}, pod, container, id)
	k.memory.AddContainer(klog.Logger{}, pod, container, id)
	k.topology.AddContainer(klog.Logger{}, pod, container, id)
	return place
}

func (k *kubeletPlacement) place(pod *corev1.Pod, container *corev1.Container) containerPlace {
	uid := string(pod.UID)
	blocks := ourBlocks(memorystate.ContainerMemoryAssignments{uid: {container.Name: k.memory.GetMemory(klog.Logger{}, uid, container.Name)}})[uid][container.Name]
	place := containerPlace{memory: "[]"} // as the podresources API reports: see GetCPUs and GetMemory of the kubelet's container manager
	if k.cpus.GetResourceIsolationLevel(pod, container) == cmqos.ResourceIsolationContainer {
		place.cpus = k.cpus.GetExclusiveCPUs(uid, container.Name).String()
	}
	if k.memory.GetResourceIsolationLevel(pod, container) == cmqos.ResourceIsolationContainer {
		place.memory = fmt.Sprint(blocks)
	}
	for name, ids := range k.devices.Devices(uid, container.Name) { // of one resource
		place.devices += name + "=" + strings.Join(ids, ",")
	}
	return place
}

func (k *kubeletPlacement) placePod(pod *corev1.Pod) containerPlace {
	uid := string(pod.UID)
	blocks := ourBlocks(memorystate.ContainerMemoryAssignments{uid: {"": k.memory.GetPodMemory(uid)}})[uid][""]
	return containerPlace{cpus: k.cpus.GetPodCPUs(uid).String(), memory: fmt.Sprint(blocks)}
}

func (k *kubeletPlacement) shared() string { return k.cpus.GetCPUAffinity("", "").String() }

func (k *kubeletPlacement) stop() {}

// ourPlacement is a Placement.
type ourPlacement struct {
	in      *placementInput
	placed  *placement.Placement
	devices *poddevice.Devices
	feeds   []device.Feed
	failing [8]bool // by resource
	dir     string  // of the records; empty: the agent does not restart
}

func newOurPlacement(in *placementInput) *ourPlacement {
	o := &ourPlacement{in: in}
	if !in.hasRestart() {
		return o
	}
	var err error
	if o.dir, err = os.MkdirTemp("/dev/shm", "conformance"); err != nil {
		if o.dir, err = os.MkdirTemp("", "conformance"); err != nil {
			panic(err)
		}
	}
	return o
}

// noContainers is a runtime without containers, whose containers are not updated.
type noContainers struct{}

func (noContainers) Pods() ([]cri.Pod, error)    { return nil, nil }
func (noContainers) Notify(func(uids ...string)) {}
func (noContainers) UpdateContainer(context.Context, string, *cri.Resources, map[string]string) error {
	return nil
}

func (noContainers) UpdateSandbox(context.Context, string, *cri.Resources, *cri.Resources) error {
	return nil
}

func (o *ourPlacement) start([][2]string) (err error) {
	opts := placement.Options{Containers: noContainers{}, Updater: noContainers{}, Kubelet: placement.Kubelet{LateShared: true}}
	devices := device.Options{Topology: o.in.Topology, Kubelet: device.Kubelet{NoWait: true, RunWithout: true, IgnoreConflicts: true, AssumeHealthy: true}}
	if o.dir != "" {
		devices.Record, opts.CPUs.Record, opts.Memory.Record = filepath.Join(o.dir, "devices"), filepath.Join(o.dir, "cpus"), filepath.Join(o.dir, "memory")
	}
	if o.devices, err = poddevice.New(poddevice.Options{Allocator: devices}); err != nil {
		return err
	}
	if opts.Policy, err = cpus.NewPolicy(&o.in.Machine, o.in.CPUs); err != nil {
		return err
	}
	if opts.MemoryPolicy, err = numa.NewPolicy(&o.in.Machine, o.in.Memory); err != nil {
		return err
	}
	opts.Devices = o.devices
	if o.placed, err = placement.New(opts); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return o.placed.Run(ctx) // so that no timer reports that it does not run
}

func (o *ourPlacement) connect(resource int) {
	name := deviceResources[resource]
	feed, err := o.devices.Allocator().Connect(name, "/"+name, ourPlugin{newPlacementPlugin(name, &o.failing[resource])})
	if err != nil {
		panic(err)
	}
	if resource == 0 {
		o.feeds = nil
	}
	o.feeds = append(o.feeds, feed)
}

func (o *ourPlacement) list(resource int, devices []device.Device) {
	if err := o.feeds[resource].Update(devices); err != nil {
		panic(err)
	}
}

func (o *ourPlacement) fail(resource int, failing bool) { o.failing[resource] = failing }

func (o *ourPlacement) ready() {}

func (o *ourPlacement) admit(pod *corev1.Pod) string {
	err := o.placed.Reserve(context.Background(), pod)
	rejection, ok := errors.AsType[*podstatus.Rejection](err)
	switch {
	case ok:
		return rejection.Reason + ": " + hideType(rejection.Message)
	case err != nil:
		return err.Error()
	}
	return ""
}

func (o *ourPlacement) remove(pod *corev1.Pod) {
	if err := o.placed.Release(context.Background(), string(pod.UID)); err != nil {
		panic(err)
	}
}

func (o *ourPlacement) launch(pod *corev1.Pod, container *corev1.Container) containerPlace {
	var launch podspec.Launch
	if err := o.placed.Container(context.Background(), pod, container, &launch); err != nil {
		panic(err)
	}
	place := containerPlace{cpus: launch.CPUs, memory: launch.MemoryNodes}
	for _, v := range launch.Env {
		place.devices += v.Name + "=" + v.Value
	}
	return place
}

func (o *ourPlacement) place(pod *corev1.Pod, container *corev1.Container) containerPlace {
	uid := string(pod.UID)
	var set topology.CPUSet
	for _, id := range o.placed.CPUs(uid, container.Name) {
		set.Add(int(id))
	}
	blocks := o.placed.Memory(uid, container.Name) // sorted by type
	place := containerPlace{cpus: set.String(), memory: fmt.Sprint(blocks)}
	for name, devices := range o.devices.Allocator().Allocations()[uid][container.Name] { // of one resource
		var ids []string
		for _, d := range devices {
			ids = append(ids, d.ID)
		}
		slices.Sort(ids)
		place.devices += name + "=" + strings.Join(ids, ",")
	}
	return place
}

func (o *ourPlacement) placePod(pod *corev1.Pod) containerPlace {
	var set topology.CPUSet
	for _, id := range o.placed.PodCPUs(string(pod.UID)) {
		set.Add(int(id))
	}
	return containerPlace{cpus: set.String(), memory: fmt.Sprint(o.placed.PodMemory(string(pod.UID)))}
}

// shared returns the CPUs of a container that has no CPUs of its own.
func (o *ourPlacement) shared() string {
	pod := &corev1.Pod{}
	pod.UID = "shared"
	place := o.launch(pod, &corev1.Container{Name: "shared"})
	o.remove(pod)
	return place.cpus
}

func (o *ourPlacement) stop() {
	if o.dir != "" {
		_ = os.RemoveAll(o.dir)
	}
}
