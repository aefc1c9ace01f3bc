// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// cpuInput is a sequence of operations of a node with exclusive CPUs.
type cpuInput struct {
	Machine topology.Machine
	Config  cpus.Config
	Steps   []cpuStep
}

// cpuStep is an operation: one of its fields is set.
type cpuStep struct {
	Admit   *cpuAdmission
	Remove  int // 1: the first of the admitted pods
	Drop    int // 1: the second container of the first admitted pod, as if the pod had no such container any more
	Restart *cpuRestart
}

// cpuAdmission is the admission of a pod.
type cpuAdmission struct {
	Pod   cpus.Pod
	Scope string // of the topology manager: none, container, pod
	Picks []int  // selects the merged hint of each container
}

// cpuRestart is a restart of the agent. The pods are admitted again.
type cpuRestart struct {
	Options map[string]string // nil: the same
	Offline int               // number of CPUs that are offline after it
}

// makeCPUInput returns a sequence on a machine whose choice of CPUs is that of the kubelet; see takeCPUs.
func makeCPUInput(c *conformance.Choices) cpuInput {
	in := cpuInput{Config: cpus.Config{Policy: cpus.PolicyStatic, Gates: cpus.Gates{AlphaOptions: true}, Options: makeCPUOptions(c)}}
	in.Machine = makeTakeMachine(c, in.Config.Options["distribute-cpus-across-numa"] != "")
	if len(in.Machine.Nodes) > device.MaxHintNodes { // the kubelet tries all sets of nodes
		in.Machine = makeTakeMachine(c, true)
	}
	in.Config.Topology = device.Policy(c.Int(4))
	if in.Config.Options["align-by-socket"] != "" {
		in.Config.Topology = device.Restricted
	}
	reserveCPUs(c, &in.Machine, &in.Config)
	if c.OneIn(2) {
		in.Config.Kubelet = cpus.Kubelet{EmptyPool: true, RefuseChanged: true, RefuseRunning: true}
	}
	for i := range 1 + c.Int(12) {
		in.Steps = append(in.Steps, makeCPUStep(c, &in, i))
	}
	return in
}

// reserveCPUs reserves random CPUs, with which the kubelet's distribution over NUMA nodes ends.
func reserveCPUs(c *conformance.Choices, machine *topology.Machine, config *cpus.Config) {
	all := machine.Set()
	group := len(machine.CPUs) / max(1, countCores(machine))
	config.ReservedMillis = int64(group * (1 + c.Int(3)) * 1000) // whole cores: with an odd number of free CPUs of a node, the kubelet may distribute without end
	if !isSpreadInCores(config.Options) {
		config.ReservedMillis -= int64(c.Int(group*1000 - 1))
	}
	if c.OneIn(4) {
		for id := range all.All() {
			if c.OneIn(4) && (!isSpreadInCores(config.Options) || group == 1) {
				config.ReservedCPUs.Add(id)
			}
		}
		if count := config.ReservedCPUs.Len(); count > 0 {
			config.ReservedMillis = int64(count) * 1000
		}
	}
}

func countCores(machine *topology.Machine) int {
	var ids []int
	for i := range machine.CPUs {
		ids = append(ids, machine.CPUs[i].Core)
	}
	slices.Sort(ids)
	return len(slices.Compact(ids))
}

func isSpreadInCores(options map[string]string) bool {
	return options["distribute-cpus-across-numa"] != "" && options["full-pcpus-only"] != ""
}

// makeCPUOptions returns options that do not exclude each other.
func makeCPUOptions(c *conformance.Choices) map[string]string {
	options := map[string]string{}
	add := func(names ...string) {
		for _, name := range names {
			options[name] = conformance.Pick(c, "true", "1")
		}
	}
	if c.OneIn(3) {
		add("strict-cpu-reservation")
	}
	switch c.Int(6) {
	case 1:
		add("full-pcpus-only")
	case 2:
		add("distribute-cpus-across-numa")
		if c.OneIn(2) {
			add("full-pcpus-only")
		}
	case 3:
		add("prefer-align-cpus-by-uncorecache")
		if c.OneIn(2) {
			add("full-pcpus-only")
		}
	case 4:
		add("distribute-cpus-across-cores")
	}
	if c.OneIn(5) && options["distribute-cpus-across-numa"] == "" {
		add("align-by-socket")
	}
	return options
}

func makeCPUStep(c *conformance.Choices, in *cpuInput, number int) cpuStep {
	switch kind := c.Int(12); {
	case kind < 7:
		return cpuStep{Admit: makeCPUAdmission(c, in, number)}
	case kind < 9:
		return cpuStep{Remove: 1 + c.Int(4)}
	case kind == 9:
		return cpuStep{Drop: 1 + c.Int(4)}
	}
	restart := &cpuRestart{}
	if c.OneIn(3) && !isSpreadInCores(in.Config.Options) {
		if restart.Options = makeCPUOptions(c); restart.Options["distribute-cpus-across-numa"] != "" || restart.Options["align-by-socket"] != "" {
			restart.Options = nil
		}
	}
	if c.OneIn(8) && restart.Options == nil && !isSpreadInCores(in.Config.Options) && in.Config.ReservedCPUs.IsEmpty() {
		restart.Offline = 1
	}
	return cpuStep{Restart: restart}
}

// makePodLevelCPUInput returns a sequence with the gate PodLevelResourceManagers.
func makePodLevelCPUInput(c *conformance.Choices) cpuInput {
	in := makeCPUInput(c)
	in.Config.Gates.PodLevel = true
	for i := range in.Steps {
		a := in.Steps[i].Admit
		if a == nil {
			continue
		}
		if a.Pod.PodLevel = c.OneIn(2); a.Pod.PodLevel {
			a.setPodLevel(c)
		}
	}
	return in
}

// setPodLevel sets the request of the pod, which is not below those of its containers, as an API server requires.
func (a *cpuAdmission) setPodLevel(c *conformance.Choices) {
	kept, peak := int64(0), int64(0)
	for i := range a.Pod.Containers {
		container := &a.Pod.Containers[i]
		container.Guaranteed = container.Millis > 0 && !c.OneIn(4)
		if container.Kind == device.Init {
			peak = max(peak, kept+container.Millis)
			continue
		}
		kept += container.Millis
	}
	a.Pod.Millis = max(peak, kept)
	switch c.Int(4) {
	case 1:
		a.Pod.Millis = (a.Pod.Millis + 999) / 1000 * 1000
	case 2:
		a.Pod.Millis = (a.Pod.Millis+999)/1000*1000 + int64(c.Int(4))*1000
	}
}

func makeCPUAdmission(c *conformance.Choices, in *cpuInput, number int) *cpuAdmission {
	a := &cpuAdmission{Scope: conformance.Pick(c, "none", "container", "pod")}
	a.Pod = cpus.Pod{UID: fmt.Sprint("pod", number), Guaranteed: !c.OneIn(6), PodLevel: c.OneIn(10), Millis: 64000}
	inits := c.Int(3)
	for i := range inits + 1 + c.Int(2) {
		container := cpus.Container{Name: fmt.Sprint("c", i), Millis: int64(1+c.Int(min(6, len(in.Machine.CPUs)))) * 1000}
		if i < inits {
			container.Kind = conformance.Pick(c, device.Init, device.Sidecar)
		}
		switch c.Int(8) {
		case 1:
			container.Millis = int64(c.Int(5)) * 500
		case 2:
			container.Millis = int64(c.Int(len(in.Machine.CPUs)+2)) * 1000
		}
		a.Pod.Containers = append(a.Pod.Containers, container)
		a.Picks = append(a.Picks, c.Int(256))
	}
	return a
}

// toCorePod converts a pod to the type of the API.
func toCorePod(p *cpus.Pod) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(p.UID), Name: p.UID, Namespace: "default"}}
	pod.Status.QOSClass = corev1.PodQOSBurstable
	if p.Guaranteed {
		pod.Status.QOSClass = corev1.PodQOSGuaranteed
	}
	if p.PodLevel {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(p.Millis, resource.DecimalSI)}}
	}
	for _, container := range p.Containers {
		out := corev1.Container{Name: container.Name}
		if container.Millis > 0 {
			out.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(container.Millis, resource.DecimalSI)}
		}
		if container.Guaranteed {
			out.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Mi")
			out.Resources.Limits = out.Resources.Requests
		}
		switch container.Kind {
		case device.Regular:
			pod.Spec.Containers = append(pod.Spec.Containers, out)
			continue
		case device.Sidecar:
			always := corev1.ContainerRestartPolicyAlways
			out.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, out)
	}
	return pod
}

// offline returns the machine without its last CPUs.
func (in *cpuInput) offline(count int) topology.Machine {
	machine := in.Machine
	machine.CPUs = machine.CPUs[:max(1, len(machine.CPUs)-count)]
	return machine
}
