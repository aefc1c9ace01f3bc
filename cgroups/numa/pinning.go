// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import "github.com/seed81659283/nodeagent/device"

// Pinning is the outcome of a reservation for one container with memory of its own, or that shares the memory of its pod, for metrics.
type Pinning struct {
	Share device.Share
	Taken int   // allocations: one per type of memory, or one for a part of the memory of the pod; zero: the reservation took no memory
	Err   error // of the reservation; nil: it succeeded
}

// Pinning returns the outcome of [Policy.Reserve] for container i of a pod. before is the state before the reservation of the pod, err the error of Reserve.
// It returns false if the container cannot have memory of its own. Source: Allocate in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) Pinning(before State, pod *Pod, i int, err error) (Pinning, bool) {
	requests := p.containerRequests(pod, i)
	if !p.static || len(requests) == 0 {
		return Pinning{}, false
	}
	o := Pinning{Err: err}
	if _, had := before.pods.get(pod.UID)[pod.Containers[i].Name]; !had && err == nil && !pod.Running {
		o.Taken = len(requests)
	}
	return o, true
}

// PodPinnings returns the outcomes of [Policy.ReservePod], one for each container of the pod. before and after are the states before and after it. If its
// error err is not nil, there is one outcome, for the pod. The result is nil if the pod is not Guaranteed. Source: AllocatePod in
// pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) PodPinnings(before, after State, pod *Pod, err error) (list []Pinning) {
	if !p.static || !pod.Guaranteed {
		return nil
	}
	if err != nil {
		return []Pinning{{Share: device.OfPod, Err: err}}
	}
	for i := range pod.Containers {
		o := Pinning{Share: device.OfPod}
		if after.SharesPod(pod, i) {
			o.Share = device.SharedOfPod
		}
		if before.pods.get(pod.UID) == nil && after.pods.get(pod.UID) != nil {
			o.Taken = 1
		}
		list = append(list, o)
	}
	return list
}
