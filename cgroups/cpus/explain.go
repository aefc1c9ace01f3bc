// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Explain returns a line for each container of a pod, for logs and events: which CPUs of which NUMA nodes it has exclusively or shares with its pod, why
// it runs in the shared pool, or how many CPUs of each NUMA node are free if it lacks its CPUs. A pod of [Policy.ReservePod] has a line before those of
// its containers.
func (p *Policy) Explain(s State, pod *Pod) string {
	var lines []string
	if whole, ok := s.Assigned[pod.UID][WholePod]; ok {
		lines = append(lines, fmt.Sprintf("the pod has CPUs %s: %s", whole, p.describeParts(whole)))
	}
	for i := range pod.Containers {
		lines = append(lines, p.ExplainContainer(s, pod, i))
	}
	return strings.Join(lines, "\n")
}

// ExplainContainer returns the line of [Policy.Explain] for container i.
func (p *Policy) ExplainContainer(s State, pod *Pod, i int) string {
	return "container " + pod.Containers[i].Name + " " + p.explainContainer(&s, pod, i)
}

// ExplainPod returns why ReservePod may refuse a pod: no CPU would be left to the containers that share, or the numbers of free CPUs of each NUMA node.
// It returns "" if the pod needs no exclusive CPUs.
func (p *Policy) ExplainPod(s State, pod *Pod) string {
	count := p.countPeak(pod)
	if !p.static || count == 0 {
		return ""
	}
	if err := p.checkShares(pod, count); err != nil {
		return fmt.Sprintf("the pod requests %d CPUs: %v", count, err)
	}
	return fmt.Sprintf("the pod needs %d CPUs: %s", count, p.describeFree(&s))
}

// explainContainer returns the line of container i without its name.
func (p *Policy) explainContainer(s *State, pod *Pod, i int) string {
	set, ok := s.CPUs(pod.UID, pod.Containers[i].Name)
	if ok && s.SharesPod(pod, i) {
		return fmt.Sprintf("shares CPUs %s with its pod: %s", set, p.describeParts(set))
	}
	if ok {
		return fmt.Sprintf("has CPUs %s: %s", set, p.describeParts(set))
	}
	if reason := p.explainShared(pod, i); reason != "" {
		return fmt.Sprintf("runs on the shared CPUs %s: %s", s.Shared, reason)
	}
	text := fmt.Sprintf("needs %d CPUs: %s", p.countCPUs(pod, i), p.describeFree(s))
	if p.IsPodLevel(pod) && p.countPeak(pod) == 0 {
		text += fmt.Sprintf("; under the scope pod it runs on the shared CPUs %s, because the request of %dm of the pod is no whole number of CPUs", s.Shared, pod.Millis)
	}
	return text
}

// describeFree returns how many CPUs of each NUMA node are free.
func (p *Policy) describeFree(s *State) string {
	free, exclusive := p.free(s), s.exclusive()
	return p.describeNodes(func(cpus topology.CPUSet) string {
		return fmt.Sprintf("%d of %d free (%d reserved, %d exclusive%s)", cpus.CountCommon(free), cpus.Len(), cpus.CountCommon(p.reserved),
			cpus.CountCommon(exclusive), p.describeCores(free.Intersect(cpus)))
	})
}

// describeParts returns which CPUs of a set are on each NUMA node.
func (p *Policy) describeParts(set topology.CPUSet) string {
	return p.describeNodes(func(cpus topology.CPUSet) string { return p.describePart(set.Intersect(cpus)) })
}

// explainShared returns the reason for which container i has no exclusive CPUs, or "" if it must have some.
func (p *Policy) explainShared(pod *Pod, i int) string {
	switch c := &pod.Containers[i]; {
	case !p.static:
		return "the policy is none"
	case !pod.Guaranteed:
		return "the pod is not Guaranteed"
	case pod.PodLevel && !p.podLevel:
		return "the pod has pod-level resources"
	case c.Millis <= 0:
		return "it requests no CPU"
	case c.Millis%1000 != 0:
		return fmt.Sprintf("its request of %dm is no whole number of CPUs", c.Millis)
	case pod.PodLevel && !c.Guaranteed:
		return "its limits are not its requests"
	}
	return ""
}

// describeNodes returns the text of each NUMA node, where it is not empty.
func (p *Policy) describeNodes(describe func(cpus topology.CPUSet) string) string {
	var parts []string
	for n, id := range p.layout.nodes.ids {
		if text := describe(p.layout.nodes.sets[n]); text != "" {
			parts = append(parts, fmt.Sprintf("node %d: %s", id, text))
		}
	}
	return strings.Join(parts, "; ")
}

// describePart returns the CPUs of a container on one NUMA node, and how many of them are whole cores.
func (p *Policy) describePart(set topology.CPUSet) string {
	if set.IsEmpty() {
		return ""
	}
	return fmt.Sprintf("%s (whole cores: %d)", set, p.countWholeCores(set))
}

// describeCores returns the number of whole cores in a set of free CPUs, if the policy assigns only whole cores.
func (p *Policy) describeCores(free topology.CPUSet) string {
	if !p.take.WholeCores {
		return ""
	}
	return fmt.Sprintf(", whole cores free: %d", p.countWholeCores(free))
}

// countWholeCores returns the number of cores whose CPUs are all in the set.
func (p *Policy) countWholeCores(set topology.CPUSet) (count int) {
	for i := range p.layout.cores.sets {
		if core := p.layout.cores.sets[i]; core.CountCommon(set) == core.Len() {
			count++
		}
	}
	return count
}
