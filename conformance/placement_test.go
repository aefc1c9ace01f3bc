// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// The kubelet's topology manager, with its managers of devices, CPUs and memory, and a Placement take the same steps on the same nodes: pods come and go,
// containers start, devices change their health, the agent restarts. After each step they agree on refusals word by word, on the CPUs, memory and devices
// of every container, and on the shared pool. One input has up to 12 steps: a tenth of the inputs is enough for each run.
func TestPlacement(t *testing.T) {
	setAlphaOptions(t)
	placements.Run(t, flags.AtMost(flags.Inputs()/10))
}

// The same with the gate PodLevelResourceManagers: pods with pod-level resources divide their CPUs and memory among their containers.
func TestPodLevelPlacement(t *testing.T) {
	setAlphaOptions(t)
	setPodLevelGate(t)
	podLevelPlacements.Run(t, flags.AtMost(flags.Inputs()/10))
}

func FuzzPodLevelPlacement(f *testing.F) {
	setAlphaOptions(f)
	setPodLevelGate(f)
	fuzz(f, podLevelPlacements)
}

var podLevelPlacements = conformance.Comparison[placementInput, []string]{
	Make: makePodLevelPlacementInput, Kubelet: placements.Kubelet, Ours: placements.Ours, Exceptions: placements.Exceptions,
}

func FuzzPlacement(f *testing.F) {
	setAlphaOptions(f)
	fuzz(f, placements)
}

var placements = conformance.Comparison[placementInput, []string]{
	Make:    makePlacementInput,
	Kubelet: func(in placementInput) []string { return in.play(&kubeletPlacement{in: &in}) },
	Ours:    func(in placementInput) []string { return in.play(newOurPlacement(&in)) },
	Exceptions: []conformance.Exception[placementInput, []string]{{
		Name: "devices after a restart", Reason: "a pod keeps its devices after a restart, also if they are not listed yet or unhealthy; the kubelet refuses it if the container does not run",
		When: func(in placementInput) bool {
			return in.hasRestart() && slices.ContainsFunc(in.play(&kubeletPlacement{in: &in}), func(line string) bool {
				return strings.HasPrefix(line, "again ") && strings.Contains(line, unhealthyText)
			})
		},
	}, {
		Name: "mixed nodes", Reason: "after a topology policy has put a container on one node of a group, the blocks tell what is in use; the kubelet loses memory",
		When: func(in placementInput) bool {
			side := &kubeletPlacement{in: &in, watched: true}
			in.play(side)
			return side.mixed
		},
	}, {
		Rare: true, Name: "refused after a restart", Reason: "a pod that is refused holds nothing; in the kubelet, containers before the refused one keep what they got until all sources are ready",
		When: func(in placementInput) bool {
			side := &kubeletPlacement{in: &in}
			in.play(side)
			return side.held
		},
	}},
}

// play executes the steps, and returns the results of each.
func (in *placementInput) play(side placementSide) (lines []string) {
	defer side.stop()
	p := placementPlay{side: side, listed: slices.Clone(in.Devices)}
	if err := side.start(nil); err != nil {
		return []string{"start: " + err.Error()}
	}
	p.connect()
	for i, step := range in.Steps {
		p.note("step %d", i)
		switch {
		case step.Admit != nil:
			p.admit(step.Admit)
		case step.Remove > 0 && len(p.pods) > 0:
			at := (step.Remove - 1) % len(p.pods)
			side.remove(p.pods[at].Pod)
			p.pods = slices.Delete(p.pods, at, at+1)
		case step.List != nil:
			p.listed[step.List.Resource] = step.List.Devices
			side.list(step.List.Resource, step.List.Devices)
		case step.Fail != nil:
			side.fail(step.Fail.Resource, step.Fail.Failing)
			p.failed = true
		case step.Restart != nil:
			in.change(step.Restart)
			if !p.restart(step.Restart.Late) {
				return p.lines
			}
		}
		p.describe()
	}
	return p.lines
}

// change changes the configuration for a restart.
func (in *placementInput) change(restart *placementRestart) {
	if restart.Topology != nil {
		in.Topology, in.CPUs.Topology = *restart.Topology, restart.Topology.Policy
	}
	if restart.Options != nil {
		in.CPUs.Options = restart.Options
	}
}

// placementPlay is the execution of the steps on a side.
type placementPlay struct {
	failed bool // a plugin has failed: of a pod that lacks CPUs, too, the kubelet reports the plugin, and a Placement does not call it
	side   placementSide
	listed [][]device.Device
	pods   []*placementPod // that are admitted
	lines  []string
}

func (p *placementPlay) note(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// unhealthyText is in the kubelet's refusal of a pod whose devices are not listed, or unhealthy.
const unhealthyText = "cannot allocate unhealthy devices"

// connect connects all plugins.
func (p *placementPlay) connect() {
	for i, devices := range p.listed {
		p.side.connect(i)
		p.side.list(i, devices)
	}
}

// admit admits a pod, and starts its first containers.
func (p *placementPlay) admit(pod *placementPod) {
	if refusal := p.side.admit(pod.Pod); refusal != "" {
		if p.failed {
			refusal = "refused"
		}
		p.note("%s: %s", pod.Pod.UID, refusal)
		p.side.remove(pod.Pod)
		return
	}
	p.pods = append(p.pods, pod)
	for _, c := range containersOf(pod.Pod)[:pod.Started] {
		p.note("start %s %s: %v", pod.Pod.UID, c.Name, p.side.launch(pod.Pod, c))
	}
}

// restart restarts the agent, which admits all pods again before it frees what the refused pods have.
func (p *placementPlay) restart(late bool) bool {
	if err := p.side.start(p.running()); err != nil {
		p.note("start: %v", err)
		return false
	}
	if !late {
		p.connect()
	}
	var admitted, refused []*placementPod
	for _, pod := range p.pods {
		if refusal := p.side.admit(pod.Pod); refusal != "" {
			if p.failed && !strings.Contains(refusal, unhealthyText) {
				refusal = "refused"
			}
			p.note("again %s: %s", pod.Pod.UID, refusal)
			refused = append(refused, pod)
		} else {
			admitted = append(admitted, pod)
		}
	}
	p.side.ready()
	for _, pod := range refused {
		p.side.remove(pod.Pod)
	}
	p.pods = admitted
	if late {
		p.connect()
	}
	return true
}

// running returns the UIDs and names of the containers that run: of the started init containers, only the last does, and only if no other has started.
func (p *placementPlay) running() (list [][2]string) {
	for _, pod := range p.pods {
		for i, c := range containersOf(pod.Pod)[:pod.Started] {
			isInit := i < len(pod.Pod.Spec.InitContainers) && c.RestartPolicy == nil
			if !isInit || i == pod.Started-1 {
				list = append(list, [2]string{string(pod.Pod.UID), c.Name})
			}
		}
	}
	return list
}

// describe adds what each container has, and the shared pool.
func (p *placementPlay) describe() {
	p.note("shared: %s", p.side.shared())
	for _, pod := range p.pods {
		p.note("%s: %v", pod.Pod.UID, p.side.placePod(pod.Pod))
		for _, c := range containersOf(pod.Pod) {
			p.note("%s %s: %v", pod.Pod.UID, c.Name, p.side.place(pod.Pod, c))
		}
	}
}

// containersOf returns the containers of a pod in the order in which they start.
func containersOf(pod *corev1.Pod) (list []*corev1.Container) {
	for i := range len(pod.Spec.InitContainers) + len(pod.Spec.Containers) {
		list = append(list, containerOf(pod, i))
	}
	return list
}
