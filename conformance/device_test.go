// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

func TestDeviceHints(t *testing.T)     { run(t, deviceHints) }
func FuzzDeviceHints(f *testing.F)     { fuzz(f, deviceHints) }
func TestDevicePick(t *testing.T)      { run(t, devicePick) }
func FuzzDevicePick(f *testing.F)      { fuzz(f, devicePick) }
func TestTopologyPolicy(t *testing.T)  { run(t, topologyPolicy) }
func FuzzTopologyPolicy(f *testing.F)  { fuzz(f, topologyPolicy) }
func TestTopologyOptions(t *testing.T) { run(t, topologyOptions) }

// deviceInput is a request for devices of one resource.
type deviceInput struct {
	Pool    device.Pool
	Request device.Request
	Machine int // number of NUMA nodes
	Prefers bool
}

// makeDeviceInput returns a pool on a machine with up to eight NUMA nodes, and a request of a container that may hold devices or may use those of an init
// container.
func makeDeviceInput(c *conformance.Choices) deviceInput {
	in := deviceInput{Pool: device.Pool{Resource: devicemanager.ConformanceResource, InUse: map[string]bool{}}, Machine: 1 + c.Int(8), Prefers: c.OneIn(2)}
	in.Request = device.Request{PodUID: devicemanager.ConformancePodUID, Container: devicemanager.ConformanceContainer, Count: 1 + c.Int(6)}
	topology, holds := !c.OneIn(8), c.OneIn(8)
	for i := range c.Int(14) {
		d := device.Device{ID: fmt.Sprintf("d%02d", i), Healthy: !c.OneIn(6)}
		if topology && !c.OneIn(6) {
			d.Nodes = 1 << c.Int(in.Machine)
			if c.OneIn(4) {
				d.Nodes |= 1 << c.Int(in.Machine+1) // may be a node that the machine lacks
			}
		}
		in.Pool.Devices = append(in.Pool.Devices, d)
		switch {
		case holds && len(in.Request.Held) < in.Request.Count && c.OneIn(2):
			in.Request.Held, in.Pool.InUse[d.ID] = append(in.Request.Held, d.ID), true
		case c.OneIn(3):
			in.Pool.InUse[d.ID] = true
			if c.OneIn(2) && (d.Nodes == 0 || d.Nodes&(1<<in.Machine-1) != 0) {
				in.Request.Reusable = append(in.Request.Reusable, d.ID)
			}
		}
	}
	if c.OneIn(2) {
		in.Request.Nodes = device.Mask(1 + c.Int(1<<in.Machine-1))
	}
	return in
}

func (in *deviceInput) machine() device.Mask { return 1<<in.Machine - 1 }

// kubelet returns the same request for the kubelet.
func (in *deviceInput) kubelet() *devicemanager.ConformanceRequest {
	r := &devicemanager.ConformanceRequest{
		Count: in.Request.Count, Devices: map[string]*pluginapi.Device{}, Held: in.Request.Held, Reusable: in.Request.Reusable, Affinity: kubeletHint(device.Hint{Nodes: in.Request.Nodes}),
	}
	for n := range in.Machine {
		r.MachineNodes = append(r.MachineNodes, n)
	}
	for _, d := range in.Pool.Devices {
		k := &pluginapi.Device{ID: d.ID, Health: pluginapi.Unhealthy}
		if d.Healthy {
			k.Health = pluginapi.Healthy
		}
		for n := range d.Nodes.Nodes() {
			if k.Topology == nil {
				k.Topology = &pluginapi.TopologyInfo{}
			}
			k.Topology.Nodes = append(k.Topology.Nodes, &pluginapi.NUMANode{ID: int64(n)})
		}
		r.Devices[d.ID] = k
		if in.Pool.InUse[d.ID] {
			r.InUse = append(r.InUse, d.ID)
		}
	}
	return r
}

// kubeletHint converts a hint to the kubelet's type.
func kubeletHint(h device.Hint) topologymanager.TopologyHint {
	if h.Nodes == 0 {
		return topologymanager.TopologyHint{Preferred: h.Preferred}
	}
	mask, err := bitmask.NewBitMask(slices.Collect(h.Nodes.Nodes())...)
	if err != nil {
		panic(err) // a Mask has only valid bits
	}
	return topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: h.Preferred}
}

// ourHint converts a hint of the kubelet.
func ourHint(h topologymanager.TopologyHint) device.Hint {
	out := device.Hint{Preferred: h.Preferred}
	if h.NUMANodeAffinity != nil {
		for _, n := range h.NUMANodeAffinity.GetBits() {
			out.Nodes |= 1 << n
		}
	}
	return out
}

// hintsResult has the hints, and whether there is a preference at all.
type hintsResult struct {
	Preference bool
	Hints      []device.Hint
}

var deviceHints = conformance.Comparison[deviceInput, hintsResult]{
	Make: makeDeviceInput,
	Kubelet: func(in deviceInput) hintsResult {
		hints := in.kubelet().Hints()
		out := hintsResult{Preference: hints != nil}
		for _, h := range hints {
			out.Hints = append(out.Hints, ourHint(h))
		}
		return out
	},
	Ours: func(in deviceInput) hintsResult {
		hints, err := device.Hints(&in.Pool, in.Request, in.machine())
		if err != nil {
			panic(err) // no input has more than eight nodes
		}
		return hintsResult{Preference: hints != nil, Hints: append([]device.Hint(nil), hints...)}
	},
}

// pickResult describes chosen devices. Which of equally good devices are chosen is not compared, because the kubelet takes any.
type pickResult struct {
	Error                               string
	Total, Reused, Aligned, Others      int
	Preferred                           []string // chosen ones that the plugin prefers
	Open, MustInclude                   []string // in the call of GetPreferredAllocation
	Size                                int
	HasDuplicates, HasForeign, HasInUse bool
}

// describePick describes the devices ids, which a plugin that prefers the device with the highest ID has influenced.
func describePick(in *deviceInput, ids []string, err error, asked *pickResult) pickResult {
	out := *asked
	if err != nil {
		return pickResult{Error: err.Error()}
	}
	out.Total = len(ids)
	out.HasDuplicates = len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids)
	topology := slices.ContainsFunc(in.Pool.Devices, func(d device.Device) bool { return d.Nodes != 0 })
	for _, id := range ids {
		i := slices.IndexFunc(in.Pool.Devices, func(d device.Device) bool { return d.ID == id })
		switch {
		case i < 0:
			out.HasForeign = true
		case slices.Contains(in.Request.Reusable, id):
			out.Reused++
		case in.Pool.InUse[id]:
			out.HasInUse = true
		case topology && in.Pool.Devices[i].Nodes&in.Request.Nodes != 0:
			out.Aligned++
		default:
			out.Others++
		}
		if slices.Contains(out.Open, id) && !slices.Contains(out.MustInclude, id) && id == slices.Max(out.Open) {
			out.Preferred = append(out.Preferred, id)
		}
	}
	return out
}

var devicePick = conformance.Comparison[deviceInput, pickResult]{
	Make: makeDeviceInput,
	Kubelet: func(in deviceInput) pickResult {
		var asked pickResult
		r := in.kubelet()
		if in.Prefers {
			r.Prefer = func(available, mustInclude []string, size int) []string {
				asked = pickResult{Open: slices.Sorted(slices.Values(available)), MustInclude: slices.Sorted(slices.Values(mustInclude)), Size: size}
				return []string{slices.Max(available), "foreign"}
			}
		}
		ids, err := r.Pick(context.Background())
		return describePick(&in, ids, err, &asked)
	},
	Ours: func(in deviceInput) pickResult {
		var asked pickResult
		choice, err := device.Pick(&in.Pool, in.Request)
		if err != nil {
			return describePick(&in, nil, err, &asked)
		}
		var preferred []string
		if in.Prefers && len(choice.Open) > 0 {
			available := slices.Sorted(slices.Values(slices.Concat(choice.Open, choice.Chosen)))
			asked = pickResult{Open: available, MustInclude: slices.Sorted(slices.Values(choice.Chosen)), Size: choice.Count}
			preferred = []string{slices.Max(available), "foreign"}
		}
		return describePick(&in, choice.Complete(preferred), nil, &asked)
	},
}

// policyInput has the hints of up to four resources on a machine. With distances, the policy prefers the closest NUMA nodes.
type policyInput struct {
	Policy    device.Policy
	Machine   int
	Distances [][]int
	Resources [][]device.Hint
}

func makePolicyInput(c *conformance.Choices) policyInput {
	in := policyInput{Policy: device.Policy(c.Int(4)), Machine: 1 + c.Int(8)}
	for range c.Int(5) {
		switch {
		case c.OneIn(8):
			in.Resources = append(in.Resources, nil)
			continue
		case c.OneIn(8):
			in.Resources = append(in.Resources, []device.Hint{})
			continue
		}
		var hints []device.Hint
		for range 1 + c.Int(6) {
			hints = append(hints, device.Hint{Nodes: device.Mask(1 + c.Int(1<<in.Machine-1)), Preferred: c.OneIn(2)})
		}
		in.Resources = append(in.Resources, hints)
	}
	if c.OneIn(2) {
		for range in.Machine {
			var row []int
			for range in.Machine {
				row = append(row, 10+c.Int(4))
			}
			in.Distances = append(in.Distances, row)
		}
	}
	return in
}

// nodes returns the NUMA nodes of the machine.
func (in *policyInput) nodes() (nodes []device.NUMANode) {
	for n := range in.Machine {
		node := device.NUMANode{ID: n}
		if in.Distances != nil {
			node.Distances = in.Distances[n]
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// kubeletNodes converts NUMA nodes to the kubelet's type.
func kubeletNodes(nodes []device.NUMANode) (out []cadvisorapi.Node) {
	for _, n := range nodes {
		node := cadvisorapi.Node{Id: n.ID}
		for _, d := range n.Distances {
			node.Distances = append(node.Distances, uint64(d))
		}
		out = append(out, node)
	}
	return out
}

type policyResult struct {
	Hint  device.Hint
	Admit bool
}

var topologyPolicy = conformance.Comparison[policyInput, policyResult]{
	Make: makePolicyInput,
	Kubelet: func(in policyInput) policyResult {
		opts := topologymanager.PolicyOptions{PreferClosestNUMA: in.Distances != nil}
		info, err := topologymanager.NewNUMAInfo(kubeletNodes(in.nodes()), opts)
		if err != nil {
			panic(err) // all nodes have distances
		}
		policy := map[device.Policy]topologymanager.Policy{
			device.None:           topologymanager.NewNonePolicy(),
			device.BestEffort:     topologymanager.NewBestEffortPolicy(info, opts),
			device.Restricted:     topologymanager.NewRestrictedPolicy(info, opts),
			device.SingleNUMANode: topologymanager.NewSingleNumaNodePolicy(info, opts),
		}[in.Policy]
		var providers []map[string][]topologymanager.TopologyHint
		for _, hints := range in.Resources {
			var list []topologymanager.TopologyHint
			if hints != nil {
				list = []topologymanager.TopologyHint{}
			}
			for _, h := range hints {
				list = append(list, kubeletHint(h))
			}
			providers = append(providers, map[string][]topologymanager.TopologyHint{"resource": list})
		}
		hint, admit := policy.Merge(klog.Logger{}, providers)
		return policyResult{ourHint(hint), admit}
	},
	Ours: func(in policyInput) policyResult {
		if in.Distances == nil {
			hint, admit := in.Policy.Merge(in.Resources, 1<<in.Machine-1)
			return policyResult{hint, admit}
		}
		merger, err := device.NewMerger(in.Policy, map[string]string{device.PreferClosestNUMANodes: "true"}, in.nodes())
		if err != nil {
			panic(err) // all nodes have distances
		}
		hint, admit := merger.Merge(in.Resources)
		return policyResult{hint, admit}
	},
}

// topologyInput is a topology policy with options on a machine.
type topologyInput struct {
	Policy  device.Policy
	Options map[string]string
	Nodes   []device.NUMANode
}

// topologyOptions compares the errors with which a kubelet does not start.
var topologyOptions = conformance.Comparison[topologyInput, string]{
	Make: func(c *conformance.Choices) topologyInput {
		in := topologyInput{Policy: device.Policy(c.Int(4)), Options: map[string]string{}}
		switch c.Int(4) { // of several wrong options, the kubelet names any
		case 1:
			in.Options[device.PreferClosestNUMANodes] = conformance.Pick(c, "true", "false", "1", "yes", "")
		case 2:
			in.Options[device.MaxAllowableNUMANodes] = conformance.Pick(c, "8", "9", "12", "7", "-1", "many", "", "99999999999999999999")
		case 3:
			in.Options[conformance.Pick(c, "prefer-closest-numa", "x", "")] = "true"
		}
		distances := c.OneIn(2)
		for n := range 1 + c.Int(14) {
			node := device.NUMANode{ID: n}
			in.Nodes = append(in.Nodes, node)
		}
		for n := range in.Nodes {
			if distances || c.OneIn(4) {
				in.Nodes[n].Distances = make([]int, len(in.Nodes))
			}
		}
		return in
	},
	Kubelet: func(in topologyInput) string {
		_, err := topologymanager.NewManager(klog.Logger{}, kubeletNodes(in.Nodes), in.Policy.String(), topologymanager.PodTopologyScope, in.Options)
		return fmt.Sprint(err)
	},
	Ours: func(in topologyInput) string {
		_, err := device.NewMerger(in.Policy, in.Options, in.Nodes)
		return fmt.Sprint(err)
	},
}
