// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// Sequences of admissions, removals and restarts have the same hints, CPUs, shared pool and errors. One input has up to 12 steps: a tenth of the inputs is
// enough for each run; -inputs=2000000 plays 200,000 sequences.
func TestExclusiveCPUs(t *testing.T) {
	setAlphaOptions(t)
	exclusiveCPUs.Run(t, flags.AtMost(flags.Inputs()/10))
}

// Pods with pod-level resources, with the gate PodLevelResourceManagers, have the same CPUs.
func TestPodLevelCPUs(t *testing.T) {
	setAlphaOptions(t)
	setPodLevelGate(t)
	podLevelCPUs.Run(t, flags.AtMost(flags.Inputs()/10))
}

func FuzzPodLevelCPUs(f *testing.F) {
	setAlphaOptions(f)
	setPodLevelGate(f)
	fuzz(f, podLevelCPUs)
}

func FuzzExclusiveCPUs(f *testing.F) {
	setAlphaOptions(f)
	fuzz(f, exclusiveCPUs)
}

// setAlphaOptions enables the alpha options of the CPU manager in the kubelet's code.
func setAlphaOptions(t testing.TB) { openGate(t, "CPUManagerPolicyAlphaOptions") }

// setPodLevelGate enables the gate of pods with pod-level resources in the kubelet's code.
func setPodLevelGate(t testing.TB) { openGate(t, "PodLevelResourceManagers") }

// openGate sets a feature gate of the kubelet's code, which is off by default, until the test ends.
func openGate(t testing.TB, name string) {
	require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set(name+"=true"))
	t.Cleanup(func() { require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set(name+"=false")) })
}

// podLevelCPUs does not admit a pod again that has CPUs as a whole: the kubelet would allocate a second time.
var podLevelCPUs = conformance.Comparison[cpuInput, []string]{
	Make: makePodLevelCPUInput, Kubelet: exclusiveCPUs.Kubelet, Ours: exclusiveCPUs.Ours, Exceptions: exclusiveCPUs.Exceptions,
}

var exclusiveCPUs = conformance.Comparison[cpuInput, []string]{
	Make:    makeCPUInput,
	Kubelet: func(in cpuInput) []string { return in.play(&kubeletCPUs{}) },
	Ours:    func(in cpuInput) []string { return in.play(&ourCPUs{}) },
	Exceptions: []conformance.Exception[cpuInput, []string]{{
		Name: "empty pool", Reason: "containers without exclusive CPUs always have a CPU",
		When: func(in cpuInput) bool {
			side := &kubeletCPUs{}
			in.play(side)
			return !in.Config.Kubelet.EmptyPool && side.emptied
		},
	}, {
		Name: "changed", Reason: "an agent starts with each state, and the containers keep their CPUs",
		When: func(in cpuInput) bool {
			return !in.Config.Kubelet.RefuseChanged && slices.ContainsFunc(in.play(&kubeletCPUs{}), func(line string) bool { return strings.HasPrefix(line, "start: ") })
		},
	}, {
		Name: "running", Reason: "the hints of containers that have their CPUs do not refuse a pod after a restart, and none gets those that a later container reuses",
		When: func(in cpuInput) bool {
			return !in.Config.Kubelet.RefuseRunning && slices.ContainsFunc(in.Steps, func(s cpuStep) bool { return s.Restart != nil }) && (in.losesReused() ||
				slices.ContainsFunc(in.play(&kubeletCPUs{}), func(line string) bool { return isRefusedAgain(in.Config.Topology, line) }))
		},
	}},
}

// losesReused reports whether a container of a pod with an init container, and at least two containers after that, may lose its CPUs before a restart.
func (in cpuInput) losesReused() bool {
	return slices.ContainsFunc(in.Steps, func(s cpuStep) bool { return s.Drop > 0 }) && slices.ContainsFunc(in.Steps, func(s cpuStep) bool {
		if s.Admit == nil {
			return false
		}
		first := slices.IndexFunc(s.Admit.Pod.Containers, func(c cpus.Container) bool { return c.Kind == device.Init })
		return first >= 0 && len(s.Admit.Pod.Containers)-first > 2
	})
}

// isRefusedAgain reports whether a line has hints of a second admission that the topology policy does not admit.
func isRefusedAgain(policy device.Policy, line string) bool {
	text, ok := strings.CutPrefix(line, "again hints: ")
	if !ok || text == "nil" || policy <= device.BestEffort && text != "" {
		return false
	}
	return !slices.ContainsFunc(strings.Fields(text), func(hint string) bool {
		return strings.HasSuffix(hint, "!") && (policy != device.SingleNUMANode || !strings.Contains(hint, ","))
	})
}

// cpuSide is one of the two implementations.
type cpuSide interface {
	start(machine *topology.Machine, config cpus.Config) error
	hints(pod *cpus.Pod, i int) string // of container i, or of the pod if i is negative
	reserve(pod *cpus.Pod, i int, affinity device.Mask) error
	reservePod(pod *cpus.Pod, affinity device.Mask) error
	remove(pod *cpus.Pod, i int)
	describe() string
}

// play executes the steps, and returns the results of each.
func (in cpuInput) play(side cpuSide) (lines []string) {
	if err := side.start(&in.Machine, in.Config); err != nil {
		return []string{"new: " + err.Error()}
	}
	var admitted []*cpuAdmission
	for _, step := range in.Steps {
		switch {
		case step.Admit != nil:
			lines = append(lines, step.Admit.play(side, in.Config, "")...)
			admitted = append(admitted, step.Admit)
		case step.Remove > 0 && len(admitted) > 0:
			at := (step.Remove - 1) % len(admitted)
			admitted[at].remove(side)
			admitted = slices.Delete(admitted, at, at+1)
		case step.Drop > 0 && len(admitted) > 0:
			pod := &admitted[(step.Drop-1)%len(admitted)].Pod
			side.remove(pod, step.Drop%len(pod.Containers))
		case step.Restart != nil:
			machine, config := in.offline(step.Restart.Offline), in.Config
			if step.Restart.Options != nil {
				config.Options = step.Restart.Options
			}
			if err := side.start(&machine, config); err != nil {
				return append(lines, "start: "+err.Error())
			}
			for _, a := range admitted {
				lines = append(lines, a.play(side, in.Config, "again ")...)
			}
		}
		lines = append(lines, side.describe())
	}
	return lines
}

// play admits a pod. After an error, what its first containers have is removed, as when the pod has failed.
func (a *cpuAdmission) play(side cpuSide, config cpus.Config, prefix string) (lines []string) {
	affinity := device.Mask(0)
	isWhole, isAgain := config.Gates.PodLevel && a.Pod.PodLevel && a.Scope == "pod", prefix != ""
	if isWhole && isAgain && !config.Kubelet.RefuseRunning {
		return nil
	}
	if a.Scope == "pod" {
		text := side.hints(&a.Pod, -1)
		lines = append(lines, prefix+"hints: "+text)
		affinity = pickHint(text, a.Picks[0])
	}
	if isWhole {
		if isAgain {
			return lines
		}
		if err := side.reservePod(&a.Pod, affinity); err != nil {
			a.remove(side)
			return append(lines, fmt.Sprintf("%s%s: %v", prefix, a.Pod.UID, err))
		}
		return lines
	}
	for i := range a.Pod.Containers {
		if a.Scope == "container" {
			text := side.hints(&a.Pod, i)
			lines = append(lines, prefix+"hints: "+text)
			affinity = pickHint(text, a.Picks[i])
		}
		if err := side.reserve(&a.Pod, i, affinity); err != nil {
			lines = append(lines, fmt.Sprintf("%s%s: %v", prefix, a.Pod.Containers[i].Name, err))
			a.remove(side)
			return lines
		}
	}
	return lines
}

func (a *cpuAdmission) remove(side cpuSide) {
	for i := range a.Pod.Containers {
		side.remove(&a.Pod, i)
	}
}

// pickHint returns one of the hints in the text, none, or any nodes.
func pickHint(text string, pick int) (m device.Mask) {
	hints := strings.Fields(text)
	if pick > 240 {
		return device.Mask(pick % 8)
	}
	if at := pick % (len(hints) + 1); at < len(hints) {
		for node := range strings.SplitSeq(strings.TrimSuffix(hints[at], "!"), ",") {
			var id int
			if _, err := fmt.Sscan(node, &id); err == nil {
				m |= 1 << id
			}
		}
	}
	return m
}

// describeHint returns the text of a hint: its nodes, and ! if it is preferred.
func describeHint(nodes []int, preferred bool) string {
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(nodes), "[]"), " ", ",")
	if preferred {
		text += "!"
	}
	return text
}

// kubeletCPUs is the kubelet's policy, with its state in memory.
type kubeletCPUs struct {
	policy   cpumanager.Policy
	state    state.State
	affinity *bitmask.BitMask
	topology topologymanager.Policy
	emptied  bool // the shared pool was empty, perhaps until the pod was refused for another container
}

func (k *kubeletCPUs) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint {
	if k.affinity == nil {
		return topologymanager.TopologyHint{}
	}
	return topologymanager.TopologyHint{NUMANodeAffinity: *k.affinity}
}

func (k *kubeletCPUs) GetPolicy() topologymanager.Policy { return k.topology }
func (k *kubeletCPUs) Name() string                      { return "" }

// newTopologyPolicy returns the kubelet's topology policy.
func newTopologyPolicy(policy device.Policy) topologymanager.Policy {
	if policy == device.SingleNUMANode {
		return topologymanager.NewSingleNumaNodePolicy(&topologymanager.NUMAInfo{}, topologymanager.PolicyOptions{})
	}
	return topologymanager.NewNonePolicy()
}

func (k *kubeletCPUs) start(machine *topology.Machine, config cpus.Config) (err error) {
	k.topology = newTopologyPolicy(config.Topology)
	count := int((config.ReservedMillis + 999) / 1000)
	k.policy, err = cpumanager.NewStaticPolicy(klog.Logger{}, kubeletTopology(machine), count, toKubeletSet(config.ReservedCPUs), k, config.Options)
	if err != nil {
		return fmt.Errorf("new static policy error: %w", err)
	}
	if k.state == nil {
		k.state = state.NewMemoryState(klog.Logger{})
	}
	return k.policy.Start(klog.Logger{}, k.state)
}

func toKubeletSet(set topology.CPUSet) cpuset.CPUSet { return cpuset.New(slices.Collect(set.All())...) }

func (k *kubeletCPUs) hints(p *cpus.Pod, i int) string {
	pod := toCorePod(p)
	var hints map[string][]topologymanager.TopologyHint
	if i < 0 {
		hints = k.policy.GetPodTopologyHints(klog.Logger{}, k.state, pod, lifecycle.AddOperation)
	} else {
		hints = k.policy.GetTopologyHints(klog.Logger{}, k.state, pod, findCoreContainer(pod, p.Containers[i].Name), lifecycle.AddOperation)
	}
	list, ok := hints[string(corev1.ResourceCPU)]
	if !ok {
		return "nil"
	}
	var texts []string
	for _, hint := range list {
		texts = append(texts, describeHint(hint.NUMANodeAffinity.GetBits(), hint.Preferred))
	}
	return strings.Join(texts, " ")
}

// preparedHints returns a function that computes the hints of the first container.
func (k *kubeletCPUs) preparedHints(p *cpus.Pod) func() {
	pod := toCorePod(p)
	return func() {
		k.policy.GetTopologyHints(klog.Logger{}, k.state, pod, &pod.Spec.Containers[0], lifecycle.AddOperation)
	}
}

func findCoreContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// setAffinity sets the merged hint.
func (k *kubeletCPUs) setAffinity(affinity device.Mask) {
	k.affinity = nil
	if affinity != 0 {
		mask, err := bitmask.NewBitMask(slices.Collect(affinity.Nodes())...)
		if err != nil {
			panic(err)
		}
		k.affinity = &mask
	}
}

func (k *kubeletCPUs) reserve(p *cpus.Pod, i int, affinity device.Mask) error {
	k.setAffinity(affinity)
	pod := toCorePod(p)
	return k.allocate(pod, findCoreContainer(pod, p.Containers[i].Name))
}

func (k *kubeletCPUs) reservePod(p *cpus.Pod, affinity device.Mask) error {
	k.setAffinity(affinity)
	return k.finishAllocation(k.policy.AllocatePod(klog.Logger{}, k.state, toCorePod(p), lifecycle.AddOperation))
}

func (k *kubeletCPUs) allocate(pod *corev1.Pod, container *corev1.Container) error {
	return k.finishAllocation(k.policy.Allocate(klog.Logger{}, k.state, pod, container, lifecycle.AddOperation))
}

// finishAllocation returns the refusal for the error of an allocation.
func (k *kubeletCPUs) finishAllocation(err error) error {
	if err == nil {
		k.emptied = k.emptied || k.state.GetDefaultCPUSet().IsEmpty()
		return nil
	}
	result := admission.GetPodAdmitResult(err)
	return errors.New(result.Reason + ": " + result.Message)
}

func (k *kubeletCPUs) remove(p *cpus.Pod, i int) {
	if err := k.policy.RemoveContainer(klog.Logger{}, k.state, p.UID, p.Containers[i].Name); err != nil {
		panic(err)
	}
}

func (k *kubeletCPUs) describe() string {
	assigned := map[string]map[string]string{}
	for uid, containers := range k.state.GetCPUAssignments() {
		assigned[uid] = map[string]string{}
		for name, set := range containers {
			assigned[uid][name] = set.String()
		}
	}
	for uid, entry := range k.state.GetPodCPUAssignments() {
		if assigned[uid] == nil {
			assigned[uid] = map[string]string{}
		}
		assigned[uid][cpus.WholePod] = entry.CPUSet.String()
	}
	k.emptied = k.emptied || k.state.GetDefaultCPUSet().IsEmpty()
	return fmt.Sprintf("allocatable: %s, %v, shared: %s", k.policy.GetAllocatableCPUs(k.state), assigned, k.state.GetDefaultCPUSet())
}

// ourCPUs is our policy with its state.
type ourCPUs struct {
	policy *cpus.Policy
	state  cpus.State
}

func (o *ourCPUs) start(machine *topology.Machine, config cpus.Config) (err error) {
	if o.policy, err = cpus.NewPolicy(machine, config); err == nil {
		o.state, _, err = o.policy.Restore(o.state)
	}
	return err
}

func (o *ourCPUs) hints(pod *cpus.Pod, i int) string {
	var hints []device.Hint
	if i < 0 {
		hints = o.policy.PodHints(o.state, pod)
	} else {
		hints = o.policy.Hints(o.state, pod, i)
	}
	if hints == nil {
		return "nil"
	}
	var texts []string
	for _, hint := range hints {
		texts = append(texts, describeHint(slices.Collect(hint.Nodes.Nodes()), hint.Preferred))
	}
	return strings.Join(texts, " ")
}

func (o *ourCPUs) reserve(pod *cpus.Pod, i int, affinity device.Mask) (err error) {
	o.state, err = o.policy.ReserveContainer(o.state, pod, i, affinity)
	return err
}

func (o *ourCPUs) reservePod(pod *cpus.Pod, affinity device.Mask) (err error) {
	o.state, err = o.policy.ReservePod(o.state, pod, affinity)
	return err
}

func (o *ourCPUs) remove(pod *cpus.Pod, i int) {
	o.state = o.policy.Retain(o.state, func(uid, container string) bool { return uid != pod.UID || container != pod.Containers[i].Name })
}

func (o *ourCPUs) describe() string {
	return fmt.Sprintf("allocatable: %s, %v, shared: %s", o.policy.Allocatable(), o.state.Assigned, o.state.Shared)
}
