// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

func TestNode(t *testing.T) { run(t, nodes) }
func FuzzNode(f *testing.F) { fuzz(f, nodes) }

// nodeFacts has the inputs of a Node object: nodestatus.Facts, and the inputs from which both sides build its ordered parts.
type nodeFacts struct {
	Previous *corev1.Node // nil: register the node
	Facts    nodestatus.Facts
	Statuses []agedStatus
	Version  string
	Reserved nodeInput
}

// agedStatus is a status of the runtime, and its age when the Node object is built.
type agedStatus struct {
	Age    time.Duration
	Status *cri.Status // nil: the request failed
}

// nodeBuilt has the Node object and its events.
type nodeBuilt struct {
	Node   *corev1.Node
	Events []nodestatus.Event
}

// nodes compares all setters, in their order. It ignores the event Rebooted, which the kubelet records only once per
// process.
var nodes = conformance.Comparison[nodeFacts, nodeBuilt]{
	Make:    makeNodeFacts,
	Kubelet: kubeletNodeObject,
	Ours: func(in nodeFacts) (out nodeBuilt) {
		f := in.Facts
		for _, s := range in.Statuses {
			if s.Status != nil {
				f.Runtime = f.Runtime.WithStatus(*s.Status, f.Now.Add(-s.Age))
			}
		}
		f.Runtime = f.Runtime.WithVersion(cri.Version{RuntimeName: "containerd", RuntimeVersion: in.Version})
		if in.Previous == nil {
			out.Node, out.Events = nodestatus.Initial(f)
		} else {
			out.Node, out.Events = nodestatus.Build(in.Previous, f)
		}
		out.Events = slices.DeleteFunc(out.Events, func(e nodestatus.Event) bool { return e.Reason == nodestatus.ReasonRebooted })
		return out
	},
	Same: func(kubelet, ours nodeBuilt) bool {
		return equality.Semantic.DeepEqual(kubelet.Node, ours.Node) && slices.Equal(kubelet.Events, ours.Events)
	},
	Exceptions: []conformance.Exception[nodeFacts, nodeBuilt]{{
		Name:   "runtime not ready yet",
		Reason: "the object keeps its runtime handlers until the runtime reports handlers",
		When: func(in nodeFacts) bool {
			return in.Previous != nil && !slices.ContainsFunc(in.Statuses, func(s agedStatus) bool { return s.Status != nil && isReady(*s.Status) })
		},
		Want: func(in nodeFacts, kubelet nodeBuilt) nodeBuilt {
			kubelet.Node.Status.RuntimeHandlers = in.Previous.Status.RuntimeHandlers
			return kubelet
		},
	}, {
		Name:   "disk not measured any more",
		Reason: "allocatable is computed from a capacity that the object still has",
		When: func(in nodeFacts) bool {
			return in.Previous != nil && (in.Facts.Machine.RootFS == 0 || in.Facts.Config.NoLocalStorageCapacity)
		},
		Want: func(in nodeFacts, kubelet nodeBuilt) nodeBuilt {
			const name = corev1.ResourceEphemeralStorage
			if q, has := kubelet.Node.Status.Capacity[name]; has {
				all := in.Facts.Config.Reserved.Allocatable(corev1.ResourceList{name: q})
				kubelet.Node.Status.Allocatable[name] = all[name]
			}
			return kubelet
		},
	}},
}

func isReady(s cri.Status) bool {
	c, _ := s.Condition(cri.ConditionRuntimeReady)
	return c.Status
}

// thisHost has the addresses and the user namespace of the machine, which the kubelet reads for each input.
var thisHost = func() (h struct {
	interfaces []netip.Addr
	byFamily   map[bool]netip.Addr // key true: prefer IPv4
	userNS     *bool
},
) {
	m, _ := machine.Read(os.DirFS("/"))
	h.userNS, h.byFamily = m.UserNS, map[bool]netip.Addr{}
	for _, ip := range (nodestatus.Lookup{}).Host(context.Background(), &nodestatus.Config{Name: "192.0.2.1"}).Interfaces {
		h.interfaces = append(h.interfaces, ip)
	}
	for preferIPv4, unspecified := range map[bool]net.IP{true: nil, false: net.IPv6unspecified} {
		if ip, err := utilnet.ResolveBindAddress(unspecified); err == nil {
			addr, _ := netip.AddrFromSlice(ip)
			h.byFamily[preferIPv4] = addr.Unmap()
		}
	}
	return h
}()

var nodeClock = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func makeNodeFacts(c *conformance.Choices) nodeFacts {
	in := nodeFacts{Version: conformance.Pick(c, "v2.4.0", "1.7.27", "2.4.0-rc.1+x", "1.2.3.4", "02.4", "main", "", "1..2")}
	f := &in.Facts
	f.Now = nodeClock
	f.Config = makeNodeConfig(c)
	in.Reserved = makeCapacity(c)
	f.Config.Reserved = podtree.Reserved{
		System: in.Reserved.System, Kube: in.Reserved.Kube,
		MemoryAvailable: keepFree(in.Reserved.MemoryFree), NodeFSAvailable: keepFree(in.Reserved.NodeFree),
	}
	f.Host = makeNodeHost(c, &f.Config)
	f.Machine = makeMachine(c)
	for range c.Int(4) {
		in.Statuses = append(in.Statuses, agedStatus{
			Age:    conformance.Pick(c, 0, 10*time.Second, 29*time.Second, 31*time.Second, time.Hour),
			Status: conformance.Pick(c, runtimeStatus(c), nil),
		})
	}
	slices.SortStableFunc(in.Statuses, func(a, b agedStatus) int { return int(b.Age - a.Age) })
	f.Health = nodestatus.Health{MemoryPressure: c.OneIn(3), DiskPressure: c.OneIn(3), PIDPressure: c.OneIn(3), ShuttingDown: c.OneIn(6)}
	if c.OneIn(4) {
		f.Health.Unhealthy = []error{errors.New("PLEG is not healthy: pleg was last seen active 3m10s ago; threshold is 3m0s")}
	}
	f.Health.Storage = conformance.Pick(c, nil, nil, errors.New("error initializing CSINode"))
	f.Health.Warning = conformance.Pick(c, nil, nil, errors.New("CPU hardcapping unsupported"))
	for i := range c.Int(6) {
		f.Images = append(f.Images, cri.Image{
			ID: fmt.Sprint(c.Int(256), i), Size: uint64(c.Int(3)),
			RepoTags: slices.Repeat([]string{"t"}, c.Int(5)), RepoDigests: slices.Repeat([]string{"d"}, c.Int(4)),
		})
	}
	f.ImagesKnown = true // the kubelet's cache is initially empty and never unknown
	for range c.Int(3) {
		f.VolumesInUse = append(f.VolumesInUse, conformance.Pick[corev1.UniqueVolumeName](c, "a", "b"))
	}
	slices.Sort(f.VolumesInUse)
	f.VolumesKnown = !c.OneIn(4)
	if c.OneIn(3) {
		f.Devices = makeDevices(c)
	}
	f.Announced = nodestatus.Announced{Unschedulable: c.OneIn(2)}
	if !c.OneIn(4) {
		in.Previous = previousNode(c, f.Config)
	}
	return in
}

func makeNodeConfig(c *conformance.Choices) nodestatus.Config {
	config := nodestatus.Config{
		Name:     conformance.Pick(c, "10.0.0.9", "127.0.0.1", "fd00::9", ownAddress()), // addresses, so that no DNS lookup is necessary
		Hostname: conformance.Pick(c, "n1", "192.0.2.7", "2001:db8::7"), ProviderID: conformance.Pick(c, "", "cloud://1"),
		ExternalCloudProvider: c.OneIn(3), NoControllerAttachDetach: c.OneIn(3),
		MaxPods: conformance.Pick(c, 110, 7), PodsPerCore: conformance.Pick(c, 0, 1, 10, 50),
		MaxImages: new(conformance.Pick[int32](c, 50, -1, 0, 2)), Port: 10250, NoLocalStorageCapacity: c.OneIn(4),
		DeclaredFeatures: conformance.Pick(c, []string{}, []string{"A"}, []string{"A", "B"}),
	}
	for range c.Int(3) {
		if config.Labels == nil {
			config.Labels = map[string]string{}
		}
		config.Labels[conformance.Pick(c, "disk", corev1.LabelOSStable, corev1.LabelHostname, corev1.LabelTopologyZone)] = conformance.Pick(c, "a", "")
	}
	for range c.Int(3) {
		config.Taints = append(config.Taints, corev1.Taint{Key: conformance.Pick(c, "a", "b"), Effect: corev1.TaintEffectNoSchedule})
	}
	config.NodeIPs = conformance.Pick(c, nil, addrs(ownAddress()), addrs("0.0.0.0"), addrs("::"), addrs("127.0.0.1"), addrs("192.0.2.1"),
		addrs("fe80::1"), addrs("224.0.0.1"), addrs(ownAddress(), "2001:db8::1"), addrs(ownAddress(), "::1"))
	return config
}

// ownAddress returns an address of this machine, or one that it does not have.
func ownAddress() string {
	if ip := thisHost.byFamily[true]; ip.IsValid() {
		return ip.String()
	}
	return "10.0.0.9"
}

func addrs(all ...string) (ips []netip.Addr) {
	for _, s := range all {
		ips = append(ips, netip.MustParseAddr(s))
	}
	return ips
}

func makeNodeHost(_ *conformance.Choices, c *nodestatus.Config) nodestatus.Host {
	preferIPv4 := len(c.NodeIPs) == 0 || c.NodeIPs[0].Is4()
	return nodestatus.Host{Interfaces: thisHost.interfaces, Named: addrs(c.Name), Default: thisHost.byFamily[preferIPv4]}
}

func makeMachine(c *conformance.Choices) machine.Info {
	m := machine.Info{
		MachineID: "m", SystemUUID: conformance.Pick(c, "s1", "s2"), BootID: conformance.Pick(c, "b1", "b2"),
		KernelVersion: conformance.Pick(c, "6.12.0", "7.0.0"), OSImage: "Debian GNU/Linux 13 (trixie)",
		CPUs: conformance.Pick(c, 4, 1, 64), Memory: conformance.Pick[int64](c, 16<<30, 256<<20, 4_000_000_000),
		Swap: conformance.Pick[int64](c, 0, 1<<30), RootFS: conformance.Pick[int64](c, 100<<30, 123_456_789_012, 0), UserNS: thisHost.userNS,
	}
	for _, size := range []int64{2 << 20, 1 << 30, 64 << 10} {
		if c.OneIn(3) {
			if m.HugePages == nil {
				m.HugePages = map[int64]int64{}
			}
			m.HugePages[size] = size * int64(c.Int(8))
		}
	}
	return m
}

// runtimeStatus returns a random status of a runtime.
func runtimeStatus(c *conformance.Choices) *cri.Status {
	var s cri.Status
	for _, kind := range []string{cri.ConditionRuntimeReady, cri.ConditionNetworkReady} {
		if !c.OneIn(8) {
			s.Conditions = append(s.Conditions, cri.Condition{
				Type: kind, Status: !c.OneIn(3), Reason: conformance.Pick(c, "", "R"), Message: conformance.Pick(c, "", "text"),
			})
		}
	}
	for range c.Int(4) {
		s.Handlers = append(s.Handlers, cri.RuntimeHandler{
			Name: conformance.Pick(c, "", "runc", "kata"), RecursiveReadOnlyMounts: c.OneIn(2), UserNamespaces: c.OneIn(2),
		})
	}
	s.Handlers = uniqueHandlers(s.Handlers)
	s.Features.SupplementalGroupsPolicy = c.OneIn(2)
	return &s
}

// uniqueHandlers removes handlers with duplicate names, because the kubelet's sort is unstable.
func uniqueHandlers(all []cri.RuntimeHandler) (unique []cri.RuntimeHandler) {
	for _, h := range all {
		if !slices.ContainsFunc(unique, func(u cri.RuntimeHandler) bool { return u.Name == h.Name }) {
			unique = append(unique, h)
		}
	}
	return unique
}

func makeDevices(c *conformance.Choices) (d nodestatus.Devices) {
	d.Capacity, d.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"example.com/gpu", "example.com/nic"} {
		switch c.Int(3) {
		case 1:
			d.Capacity[name] = *resource.NewQuantity(4, resource.DecimalSI)
			d.Allocatable[name] = *resource.NewQuantity(int64(c.Int(5)), resource.DecimalSI)
		case 2:
			d.Removed = append(d.Removed, name)
		}
	}
	return d
}

// previousNode returns a Node object of an earlier agent version or configuration.
func previousNode(c *conformance.Choices, config nodestatus.Config) *corev1.Node {
	before := nodestatus.Facts{
		Config: config, Machine: makeMachine(c), Host: makeNodeHost(c, &config),
		Now: nodeClock.Add(-conformance.Pick(c, time.Minute, time.Hour)),
	}
	if c.OneIn(2) {
		before.Runtime = before.Runtime.WithStatus(*runtimeStatus(c), before.Now)
	}
	before.Health = nodestatus.Health{MemoryPressure: c.OneIn(3), DiskPressure: c.OneIn(3), PIDPressure: c.OneIn(3)}
	node, _ := nodestatus.Initial(before)
	node.Spec.Unschedulable = c.OneIn(2)
	alterNode(c, node)
	return node
}

// alterNode applies changes of other clients, older versions, and random ones to an object.
func alterNode(c *conformance.Choices, node *corev1.Node) {
	s := &node.Status
	if c.OneIn(4) {
		s.Conditions = slices.Insert(s.Conditions, c.Int(len(s.Conditions)+1), corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue})
	}
	if len(s.Conditions) > 0 && c.OneIn(4) {
		at := c.Int(len(s.Conditions))
		s.Conditions[at].Status = conformance.Pick(c, corev1.ConditionUnknown, corev1.ConditionTrue, "")
		s.Conditions[at].Message, s.Conditions[at].LastTransitionTime = "older", metav1.NewTime(nodeClock.Add(-time.Hour))
	}
	if len(s.Conditions) > 0 && c.OneIn(4) {
		at := c.Int(len(s.Conditions))
		s.Conditions = slices.Delete(s.Conditions, at, at+1)
	}
	if c.OneIn(6) {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
	}
	switch c.Int(8) {
	case 1:
		s.Capacity, s.Allocatable = nil, nil
	case 2:
		s.Capacity["cluster.example.com/x"] = resource.MustParse("3")
	case 3:
		s.Allocatable["gone.example.com/x"], s.Allocatable["hugepages-3Mi"] = resource.MustParse("3"), resource.MustParse("3Mi")
		s.Allocatable["requests.example.com/x"], s.Allocatable["kubernetes.io/x"] = resource.MustParse("3"), resource.MustParse("3")
	}
	switch c.Int(6) {
	case 1:
		node.Labels = nil
	case 2:
		node.Labels[corev1.LabelOSStable] = "windows"
	case 3:
		delete(node.Labels, corev1.LabelArchStable)
	}
	if c.OneIn(4) {
		node.Annotations = conformance.Pick(c, nil, map[string]string{"alpha.kubernetes.io/provided-node-ip": "192.0.2.9", "theirs": "1"})
	}
	if c.OneIn(4) {
		s.Addresses = conformance.Pick(c, nil, []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}})
	}
	if c.OneIn(8) {
		s.NodeInfo.BootID = ""
	}
}
