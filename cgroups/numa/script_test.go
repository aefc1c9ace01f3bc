// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScripts executes the scripts in testdata. Their commands:
//
//	node 0 16Gi reserved=1Gi 2Mi=512     the machine has this NUMA node, with 512 huge pages of 2 MiB
//	kubelet                              the policy is exactly the kubelet's
//	podlevel                             the gate PodLevelResourceManagers is on
//	hints POD C=2Gi,hugepages-2Mi=4Mi    the sets of NUMA nodes for a container; * marks the preferred
//	admit POD [pod=4Gi] [init/|sidecar/]C=2Gi[+] ... [on=0,1] [policy=restricted] [scope=pod] [running]   reserves the memory of a pod; the topology
//	                                     policy chose the nodes of "on"; "+": the limit is above the request
//	start POD C                          a container starts
//	over POD                             the pod is over
//	nodes                                the use of the NUMA nodes
//	restart [0=15Gi] [policy=None]       a restarted agent, maybe on a changed machine, reads the record and admits the pods again
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) string {
		w := &world{t: t, config: numa.Config{Policy: numa.PolicyStatic}, pods: map[string]*numa.Pod{}}
		return script.Lines(text, "  ", w.do)
	})
}

// world is the state of a script.
type world struct {
	t      *testing.T
	nodes  []topology.Node
	config numa.Config
	policy *numa.Policy // nil: the machine is not complete
	state  numa.State
	pods   map[string]*numa.Pod // admitted

	podScope bool // of the pods to admit
}

// do executes one command and writes its output.
func (w *world) do(out *strings.Builder, words []string) {
	command := map[string]func([]string) []string{
		"node": w.addNode, "kubelet": w.beKubelet, "podlevel": w.openGate, "hints": w.hints, "admit": w.admit, "start": w.start, "over": w.over, "nodes": w.show, "restart": w.restart,
	}[words[0]]
	require.NotNil(w.t, command, words[0])
	for _, line := range command(words[1:]) {
		for l := range strings.SplitSeq(line, "\n") {
			fmt.Fprintln(out, "  "+l)
		}
	}
}

func (w *world) bytes(text string) uint64 {
	q, err := resource.ParseQuantity(text)
	require.NoError(w.t, err)
	return uint64(q.Value())
}

func (w *world) addNode(args []string) []string {
	id, err := strconv.Atoi(args[0])
	require.NoError(w.t, err)
	n := topology.Node{ID: id, Memory: w.bytes(args[1])}
	for _, arg := range args[2:] {
		name, value, _ := strings.Cut(arg, "=")
		if name != "reserved" {
			count, err := strconv.ParseUint(value, 10, 64)
			require.NoError(w.t, err)
			n.HugePages = append(n.HugePages, topology.HugePages{Size: w.bytes(name), Count: count})
			continue
		}
		limits := map[string]resource.Quantity{numa.Memory: resource.MustParse(value)}
		w.config.ReservedMemory = append(w.config.ReservedMemory, numa.Reservation{Node: id, Limits: limits})
		w.config.HardEviction.Add(limits[numa.Memory])
	}
	w.nodes = append(w.nodes, n)
	return nil
}

func (w *world) beKubelet([]string) []string {
	w.config.Kubelet = numa.Kubelet{FreeInit: true, RefuseChanged: true}
	return nil
}

func (w *world) openGate([]string) []string {
	w.config.PodLevel = true
	return nil
}

// open creates the policy when the machine is complete.
func (w *world) open() *numa.Policy {
	if w.policy == nil {
		var err error
		w.policy, err = numa.NewPolicy(&topology.Machine{Nodes: w.nodes}, w.config)
		require.NoError(w.t, err)
	}
	return w.policy
}

// parsePod returns the pod in the words of a command, and the hint and the topology policy with which it is admitted.
func (w *world) parsePod(args []string) (pod *numa.Pod, affinity device.Hint, policy device.Policy) {
	pod = &numa.Pod{UID: args[0], Name: args[0], Guaranteed: true}
	w.podScope = false
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "on":
			affinity.Nodes = w.parseNodes(value)
		case "policy":
			var err error
			policy, err = device.ParsePolicy(value)
			require.NoError(w.t, err)
		case "running":
			pod.Running = true
		case "scope":
			w.podScope = value == "pod"
		case "pod":
			pod.PodLevel, pod.Requests = true, w.parseSizes(value)
		default:
			value, isElastic := strings.CutSuffix(value, "+")
			c := numa.Container{Requests: w.parseSizes(value), Guaranteed: !isElastic}
			kind, plain, found := strings.Cut(name, "/")
			if !found {
				plain = name
			}
			c.Name, c.Kind = plain, map[string]device.ContainerKind{"init": device.Init, "sidecar": device.Sidecar}[kind]
			pod.Containers = append(pod.Containers, c)
		}
	}
	return pod, affinity, policy
}

// parseSizes returns the bytes of each type of memory in a text such as "2Gi,hugepages-2Mi=4Mi".
func (w *world) parseSizes(text string) map[string]uint64 {
	sizes := map[string]uint64{}
	for part := range strings.SplitSeq(text, ",") {
		resource, size, found := strings.Cut(part, "=")
		if !found {
			resource, size = numa.Memory, part
		}
		sizes[resource] = w.bytes(size)
	}
	return sizes
}

func (w *world) parseNodes(text string) (mask device.Mask) {
	for id := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(id)
		require.NoError(w.t, err)
		mask |= 1 << n
	}
	return mask
}

func (w *world) hints(args []string) (lines []string) {
	pod, _, _ := w.parsePod(args)
	lists := w.open().Hints(w.state, pod, 0)
	if lists == nil {
		return []string{"no preference"}
	}
	var words []string
	for _, h := range lists[0] {
		mark := ""
		if h.Preferred {
			mark = "*"
		}
		words = append(words, h.Nodes.String()+mark)
	}
	return []string{strings.Join(words, " ")}
}

func (w *world) admit(args []string) []string {
	pod, affinity, policy := w.parsePod(args)
	lines, err := w.reserve(pod, affinity, policy)
	if err != nil {
		return append(lines, err.Error())
	}
	w.pods[pod.UID] = pod
	return lines
}

// reserve reserves the memory of a pod. If it is refused, the state stays as it was.
func (w *world) reserve(pod *numa.Pod, affinity device.Hint, policy device.Policy) (lines []string, err error) {
	next := w.state
	var machine device.Mask
	for _, n := range w.nodes {
		machine |= 1 << n.ID
	}
	if w.podScope && w.open().IsPodLevel(pod) {
		return w.reservePod(pod, affinity, policy, machine)
	}
	for i, c := range pod.Containers {
		best := affinity
		if best.Nodes == 0 {
			admitted := false
			if best, admitted = policy.Merge(w.open().Hints(next, pod, i), machine); !admitted {
				return lines, errors.New("refused: TopologyAffinityError")
			}
		}
		if next, err = w.open().Reserve(next, pod, i, best); err != nil {
			var refusal *numa.Refusal
			require.ErrorAs(w.t, err, &refusal)
			return lines, fmt.Errorf("%s refused: %s", c.Name, refusal.Explain())
		}
		lines = append(lines, fmt.Sprintf("%s on %s", c.Name, next.NodesOf(pod.UID, c.Name)))
	}
	w.state = next
	return lines, nil
}

// reservePod reserves the memory of a pod as a whole.
func (w *world) reservePod(pod *numa.Pod, affinity device.Hint, policy device.Policy, machine device.Mask) (lines []string, err error) {
	if affinity.Nodes == 0 {
		admitted := false
		if affinity, admitted = policy.Merge(w.open().PodHints(w.state, pod), machine); !admitted {
			return nil, errors.New("refused: TopologyAffinityError")
		}
	}
	next, err := w.open().ReservePod(w.state, pod, affinity)
	if err != nil {
		var refusal *numa.Refusal
		require.ErrorAs(w.t, err, &refusal)
		return nil, fmt.Errorf("refused: %s: %s", refusal.Reason, refusal.Explain())
	}
	w.state = next
	for i, c := range pod.Containers {
		line := fmt.Sprintf("%s on %s", c.Name, next.NodesOf(pod.UID, c.Name))
		for _, b := range next.Blocks(pod.UID, c.Name) {
			line += fmt.Sprintf(" %s %s", b.Type, formatBytes(b.Size))
		}
		if next.SharesPod(pod, i) {
			line += ", shared"
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func (w *world) start(args []string) []string {
	pod := w.pods[args[0]]
	w.state = w.open().Start(w.state, pod, slices.IndexFunc(pod.Containers, func(c numa.Container) bool { return c.Name == args[1] }))
	return nil
}

func (w *world) over(args []string) []string {
	w.state = w.open().Release(w.state, args[0])
	delete(w.pods, args[0])
	return nil
}

func (w *world) show([]string) (lines []string) {
	for _, n := range w.open().Nodes(w.state) {
		line := fmt.Sprintf("node %d: %d blocks, group %s", n.ID, n.Assignments, n.Group)
		for _, name := range slices.Sorted(maps.Keys(n.Memory)) {
			line += fmt.Sprintf(", %s %s of %s free", name, formatBytes(n.Memory[name].Free), formatBytes(n.Memory[name].Allocatable))
		}
		lines = append(lines, line)
	}
	return lines
}

func formatBytes(n uint64) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }

// restart reads the record, and admits the pods again in the order of their names.
func (w *world) restart(args []string) []string {
	path := w.t.TempDir() + "/record"
	require.NoError(w.t, numa.WriteRecord(path, w.open().Save(w.state)))
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if name == "policy" {
			w.config.Policy = value
			continue
		}
		at := slices.IndexFunc(w.nodes, func(n topology.Node) bool { return strconv.Itoa(n.ID) == name })
		w.nodes[at].Memory = w.bytes(value)
	}
	w.policy = nil
	saved, err := numa.ReadRecord(path)
	require.NoError(w.t, err)
	restored, err := w.open().Restore(saved)
	if err != nil {
		return []string{err.Error()}
	}
	w.state = restored.State
	lines := restored.Changes
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.pods[uid].Running = w.config.Kubelet == numa.Kubelet{}
		containers, err := w.reserve(w.pods[uid], device.Hint{}, device.None)
		for _, line := range containers {
			lines = append(lines, uid+": "+line)
		}
		if err != nil {
			lines = append(lines, uid+": "+err.Error())
		}
	}
	return lines
}
