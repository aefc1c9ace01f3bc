// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/device"
)

// Pod is the part of a pod that a [Policy] needs.
type Pod struct {
	UID, Namespace, Name string
	Guaranteed           bool              // the QoS class of the pod is Guaranteed
	PodLevel             bool              // spec.resources of the pod is set: its containers have memory of their own only with Config.PodLevel
	Requests             map[string]uint64 // bytes of spec.resources by type of memory, from [ConvertRequests]; nil: none
	// Running is true if the pod ran when the agent started: a container without memory in the state then gets none, because it runs with all NUMA nodes in
	// cpuset.mems, and is not refused. Package cpus assigns CPUs to such a container if it can.
	Running    bool
	Containers []Container // in the order in which they start: init containers and sidecars first
}

// Container is a container of a [Pod]. An ephemeral container has no memory of its own and is left out.
type Container struct {
	Name     string
	Kind     device.ContainerKind // an [device.Init] container leaves its bytes to later containers; see [Policy.Reserve]
	Requests map[string]uint64    // bytes of each requested type of memory, from [ConvertRequests]; a request of zero bytes also assigns NUMA nodes
	// Guaranteed is true if the limits of CPU and memory equal the requests, and are not zero. It is read only if Pod.PodLevel is true: containers of such a
	// pod that are not Guaranteed have no memory of their own.
	Guaranteed bool
}

// ConvertRequests returns the requests for [Memory] and huge pages of a container, or of a pod, in bytes; nil if there are none. It ignores all other
// resources.
//
// It returns an error if a quantity is negative. It returns an error with the kubelet's text if Quantity.AsInt64 cannot convert a quantity, for example 0.5,
// 9Ei, or 1.5Gi unless the API server has changed it to 1536Mi: the kubelet refuses a Guaranteed pod with such a quantity. Source:
// getContainerRequestedResources in pkg/kubelet/cm/memorymanager/policy_static.go.
func ConvertRequests[R ~string](requests map[R]resource.Quantity) (map[string]uint64, error) {
	var sizes map[string]uint64
	for name, q := range requests {
		if !isMemory(string(name)) {
			continue
		}
		bytes, ok := q.AsInt64()
		if !ok {
			return nil, errors.New("[memorymanager] failed to represent quantity as int64")
		}
		if bytes < 0 {
			return nil, fmt.Errorf("request of %s: %s is negative", name, q.String())
		}
		if sizes == nil {
			sizes = map[string]uint64{}
		}
		sizes[string(name)] = uint64(bytes)
	}
	return sizes, nil
}

// containerRequests returns the bytes of each type of memory that container i has for itself, or nil.
func (p *Policy) containerRequests(pod *Pod, i int) map[string]uint64 {
	if pod.PodLevel && !p.podLevel {
		return nil
	}
	return pod.ownRequests(i)
}

// ownRequests returns the result of containerRequests, also if the gate of pods with pod-level resources is off.
func (pod *Pod) ownRequests(i int) map[string]uint64 {
	c := &pod.Containers[i]
	if !pod.Guaranteed || pod.PodLevel && !c.Guaranteed {
		return nil
	}
	return c.Requests
}

// sumPeak returns the bytes of a type of memory that the containers of the pod use at most at one time. An init container runs with the sidecars before
// it, all sidecars with the regular containers.
func (p *Policy) sumPeak(pod *Pod, name string) uint64 {
	var peak, sidecars, regular uint64
	for i := range pod.Containers {
		size, ok := p.containerRequests(pod, i)[name]
		switch kind := pod.Containers[i].Kind; {
		case !ok:
		case kind == device.Init:
			peak = max(peak, add(sidecars, size))
		case kind == device.Sidecar:
			sidecars = add(sidecars, size)
		default:
			regular = add(regular, size)
		}
	}
	return max(peak, add(regular, sidecars))
}

// add returns a+b, or the largest number if the sum has more than 64 bits.
func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// validate returns an error if the UID is empty, or a container name is empty or not unique.
func (pod *Pod) validate() error {
	if pod.UID == "" {
		return errors.New("reserve memory: Pod.UID is empty")
	}
	names := make(map[string]bool, len(pod.Containers))
	for i := range pod.Containers {
		name := pod.Containers[i].Name
		if name == "" || names[name] {
			return fmt.Errorf("reserve memory: pod %s/%s has two containers of the name %q, or one without name", pod.Namespace, pod.Name, name)
		}
		names[name] = true
	}
	return nil
}
