// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// ContainerPolicy limits the containers that do not run. Its fields are the kubelet's minimum-container-ttl-duration,
// maximum-dead-containers-per-container and maximum-dead-containers. Zero is a valid limit, not a default.
type ContainerPolicy struct {
	// MinAge is the least time since the creation of a container before its removal, also after the removal of its pod.
	MinAge time.Duration
	// MaxPerPodContainer is the number of instances of each pod container to keep that do not run. Negative: no limit.
	MaxPerPodContainer int
	// MaxContainers is the number of containers to keep on the node that do not run. Negative: no limit.
	MaxContainers int
}

// DefaultContainerPolicy returns the kubelet's default policy. For each pod container, it keeps the newest instance that
// is not running and removes older ones. It has no minimum age and no limit per node.
func DefaultContainerPolicy() ContainerPolicy {
	return ContainerPolicy{MaxPerPodContainer: 1, MaxContainers: -1}
}

// Validate returns an error if MinAge is negative. Source: NewContainerGC in pkg/kubelet/container/container_gc.go.
func (p ContainerPolicy) Validate() error {
	if p.MinAge < 0 {
		return fmt.Errorf("container policy: MinAge: %s must not be negative", p.MinAge)
	}
	return nil
}

// PodState says who removes the remains of a pod: its containers, sandboxes, logs and directories.
type PodState uint8

// The states of a pod. In the kubelet's pod workers the last three correspond to: neither of the following,
// ShouldPodRuntimeBeRemoved and ShouldPodContentBeRemoved.
const (
	PodActive     PodState = iota // the pod may run; the limits of ContainerPolicy apply
	PodOwned                      // another component removes the remains; this package removes nothing
	PodTerminated                 // nothing of the pod runs or will run; its remains may still be read, and are removed only for space
	PodRemoved                    // no source lists the pod and nothing of it runs; all its remains are removed
)

// String returns the name of the state: "active", "owned", "terminated" or "removed".
func (s PodState) String() string {
	names := [...]string{"active", "owned", "terminated", "removed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprint(uint8(s))
}

// OwnedBy returns a function for ContainerOptions.Pod. The function returns PodRemoved if owned returns false for the pod,
// and otherwise PodOwned. It also returns PodOwned for objects without a pod. Callers usually pass
// lifecycle.Reconciler.Owned.
func OwnedBy(owned func(uid string) bool) func(uid string) PodState {
	return func(uid string) PodState {
		if uid == "" || owned(uid) {
			return PodOwned
		}
		return PodRemoved
	}
}

// ContainerState is the input of [PlanContainers] and [PlanSandboxes].
type ContainerState struct {
	Snapshot cri.Snapshot
	Now      time.Time
	// Pod returns the state of a pod. Nil: all pods are PodActive.
	Pod func(uid string) PodState
	// MayRemove reports by labels whether a container or sandbox may be removed. Nil: all may.
	MayRemove func(labels map[string]string) bool
	// NotReady means that not all sources have reported their pods. Containers are then not removed for the state of their pod.
	NotReady bool
	// IncludeTerminated also removes the remains of terminated pods, to free space.
	IncludeTerminated bool
}

// Removal is a planned removal of a container or a sandbox.
type Removal struct {
	ID, PodUID string
	Name       string   // name of the container; empty for a sandbox
	Pod        PodState // state of the pod at the time of the plan
	Stop       bool     // the container state is unknown: stop it before the removal
	Reason     string   // reason for the log
}

// podState calls s.Pod. It returns PodActive if s.Pod is nil.
func (s *ContainerState) podState(uid string) PodState {
	if s.Pod == nil {
		return PodActive
	}
	return s.Pod(uid)
}

func (s *ContainerState) mayRemove(labels map[string]string) bool {
	return s.MayRemove == nil || s.MayRemove(labels)
}

// isRemovable reports whether all remains of a pod in this state must be removed. Remains are its containers, sandboxes, logs
// and directories.
func (s *ContainerState) isRemovable(pod PodState) bool {
	return pod == PodRemoved || s.IncludeTerminated && pod == PodTerminated
}

// instanceGroup holds the removable instances of one container of a pod, newest first.
type instanceGroup struct {
	pod       PodState
	instances []*cri.Container
}

// PlanContainers returns the containers to remove, in the order of their removal. These are all containers of removed pods,
// and the oldest containers above the limits of the policy. With state.IncludeTerminated, terminated pods count as removed.
// Running containers and containers younger than policy.MinAge stay. Source: evictContainers in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func PlanContainers(policy ContainerPolicy, state ContainerState) []Removal {
	var out []Removal
	units := state.groupInstances(policy.MinAge)
	total := 0
	for i := range units {
		u := &units[i]
		if !state.NotReady && state.isRemovable(u.pod) {
			out = u.planExcess(out, 0, "its pod was removed or has terminated")
		}
		if policy.MaxPerPodContainer >= 0 {
			out = u.planExcess(out, policy.MaxPerPodContainer, "there are newer instances of it")
		}
		total += len(u.instances)
	}
	if policy.MaxContainers < 0 || total <= policy.MaxContainers {
		return out
	}
	const many = "there are too many containers on the node"
	left := slices.DeleteFunc(slices.Clone(units), func(u instanceGroup) bool { return !state.NotReady && state.isRemovable(u.pod) })
	each := max(1, policy.MaxContainers/max(1, len(left)))
	all := instanceGroup{}
	for i := range left {
		out = left[i].planExcess(out, each, many)
		all.instances = append(all.instances, left[i].instances...)
	}
	slices.SortFunc(all.instances, compareNewestFirst)
	for i := len(all.instances) - 1; i >= policy.MaxContainers; i-- {
		out = append(out, newRemoval(all.instances[i], state.podState(all.instances[i].PodUID), many))
	}
	return out
}

// groupInstances groups the containers that may be removed by pod and container name, each group from the newest to the
// oldest.
func (s *ContainerState) groupInstances(minAge time.Duration) (units []instanceGroup) {
	type key struct{ uid, name string }
	index, pods := map[key]int{}, map[string]PodState{}
	latest := s.Now.Add(-minAge)
	for i := range s.Snapshot.Containers {
		c := &s.Snapshot.Containers[i]
		if c.State == cri.ContainerRunning || latest.Before(c.CreatedAt) || !s.mayRemove(c.Labels) {
			continue
		}
		pod, known := pods[c.PodUID]
		if !known {
			pod = s.podState(c.PodUID)
			pods[c.PodUID] = pod
		}
		if pod == PodOwned {
			continue
		}
		at, known := index[key{c.PodUID, c.Name}]
		if !known {
			at = len(units)
			index[key{c.PodUID, c.Name}] = at
			units = append(units, instanceGroup{pod: pod})
		}
		units[at].instances = append(units[at].instances, c)
	}
	for i := range units {
		slices.SortFunc(units[i].instances, compareNewestFirst)
	}
	slices.SortFunc(units, func(a, b instanceGroup) int { return compareByName(a.instances[0], b.instances[0]) })
	return units
}

// planExcess moves the oldest instances of the group to the planned removals, so that at most keep instances remain.
func (u *instanceGroup) planExcess(removals []Removal, keep int, reason string) []Removal {
	for i := len(u.instances) - 1; i >= keep; i-- {
		removals = append(removals, newRemoval(u.instances[i], u.pod, reason))
	}
	u.instances = u.instances[:min(keep, len(u.instances))]
	return removals
}

// newRemoval returns the planned removal of a container of a pod in the given state.
func newRemoval(c *cri.Container, pod PodState, reason string) Removal {
	return Removal{ID: c.ID, PodUID: c.PodUID, Name: c.Name, Pod: pod, Stop: c.State == cri.ContainerUnknown, Reason: reason}
}

func compareNewestFirst(a, b *cri.Container) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.ID, a.ID))
}

func compareByName(a, b *cri.Container) int {
	return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Name, b.Name))
}

// PlanSandboxes returns the sandboxes to remove: all sandboxes of removed pods, and all except the newest of other pods.
// With state.IncludeTerminated, terminated pods count as removed. Ready sandboxes and sandboxes with containers stay.
// Source: evictSandboxes in pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func PlanSandboxes(state ContainerState) []Removal {
	holds := make(map[string]bool, len(state.Snapshot.Containers))
	for i := range state.Snapshot.Containers {
		holds[state.Snapshot.Containers[i].SandboxID] = true
	}
	byPod := map[string][]*cri.Sandbox{}
	for i := range state.Snapshot.Sandboxes {
		if sb := &state.Snapshot.Sandboxes[i]; state.mayRemove(sb.Labels) {
			byPod[sb.Pod.UID] = append(byPod[sb.Pod.UID], sb)
		}
	}
	var out []Removal
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		pod, keep, why := state.podState(uid), 1, "there is a newer sandbox of its pod"
		if pod == PodOwned {
			continue
		}
		if state.isRemovable(pod) {
			keep, why = 0, "its pod was removed or has terminated"
		}
		sandboxes := byPod[uid]
		slices.SortFunc(sandboxes, func(a, b *cri.Sandbox) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.ID, a.ID))
		})
		for _, sb := range slices.Backward(sandboxes[keep:]) {
			if sb.State != cri.SandboxReady && !holds[sb.ID] {
				out = append(out, Removal{ID: sb.ID, PodUID: uid, Pod: pod, Reason: why})
			}
		}
	}
	return out
}
