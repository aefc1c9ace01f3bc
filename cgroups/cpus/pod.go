// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"

	"github.com/seed81659283/nodeagent/device"
)

// Pod is the part of a pod that a [Policy] needs.
type Pod struct {
	UID, Namespace, Name string
	Guaranteed           bool        // the QoS class of the pod is Guaranteed
	PodLevel             bool        // spec.resources of the pod is set: its containers have exclusive CPUs only with Gates.PodLevel
	Millis               int64       // CPU request of spec.resources in whole millicores, rounded up; zero: no request
	Running              bool        // containers of the pod have started, perhaps under another agent: only Kubelet.RefuseRunning refuses such a pod
	Containers           []Container // in the order in which they start: init containers and sidecars first
}

// Container is a container of a [Pod]. Leave out ephemeral containers: they have no exclusive CPUs.
type Container struct {
	Name   string
	Kind   device.ContainerKind // a container of kind Init exits before later containers start, which may reuse its CPUs
	Millis int64                // CPU request in whole millicores, rounded up; zero: no request
	// Guaranteed: the limits of CPU and memory equal the requests, and are not zero. It is read only if Pod.PodLevel is true: a container of such a pod
	// has no CPUs for itself if Guaranteed is false.
	Guaranteed bool
}

// countCPUs returns the number of exclusive CPUs of container i, or zero. It is the request of a container of a Guaranteed pod if that is a whole
// number. Source: guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) countCPUs(pod *Pod, i int) int {
	if pod.PodLevel && !p.podLevel {
		return 0
	}
	return pod.countExclusive(i)
}

// countExclusive returns the number of CPUs that container i needs for itself, also if the gate of pods with pod-level resources is off.
func (pod *Pod) countExclusive(i int) int {
	c := &pod.Containers[i]
	if pod.PodLevel && !c.Guaranteed {
		return 0
	}
	return pod.countWhole(c.Millis)
}

// countWhole returns the number of CPUs of a request, or zero if it is no whole number or the pod is not Guaranteed.
func (pod *Pod) countWhole(millis int64) int {
	if !pod.Guaranteed || millis <= 0 || millis%1000 != 0 {
		return 0
	}
	return int(millis / 1000)
}

// countPeak returns the number of exclusive CPUs that the containers of the pod have at most at one time. An init container runs with the sidecars
// before it, all sidecars with the regular containers. A pod with pod-level resources has those that spec.resources requests. Source: podGuaranteedCPUs in
// pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) countPeak(pod *Pod) int {
	if p.IsPodLevel(pod) {
		return pod.countWhole(pod.Millis)
	}
	kept, peak := 0, 0
	for i := range pod.Containers {
		count := p.countCPUs(pod, i)
		if pod.Containers[i].Kind == device.Init {
			peak = max(peak, kept+count)
			continue
		}
		kept += count
	}
	return max(peak, kept)
}

// validate returns an error if the UID is empty, or a container name is empty or not unique.
func (pod *Pod) validate() error {
	if pod.UID == "" {
		return errors.New("reserve CPUs: Pod.UID is empty")
	}
	names := make(map[string]bool, len(pod.Containers))
	for i := range pod.Containers {
		name := pod.Containers[i].Name
		if name == "" || names[name] {
			return fmt.Errorf("reserve CPUs: pod %s/%s has two containers of the name %q, or one without name", pod.Namespace, pod.Name, name)
		}
		names[name] = true
	}
	return nil
}
