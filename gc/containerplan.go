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

// ContainerPolicy says which containers go that do not run. Its fields are the kubelet's minimum-container-ttl-duration,
// maximum-dead-containers-per-container and maximum-dead-containers, and mean what they mean there: zero is no default but zero.
type ContainerPolicy struct {
	// MinAge is how long ago a container must have been created to go, also one of a pod that was removed.
	MinAge time.Duration
	// MaxPerPodContainer is how many instances of each container of a pod stay that do not run. Negative: all.
	MaxPerPodContainer int
	// MaxContainers is how many stay on the node. Negative: any number.
	MaxContainers int
}

// DefaultContainerPolicy returns the kubelet's defaults: no minimum age, one instance of each container, and no other limit.
func DefaultContainerPolicy() ContainerPolicy {
	return ContainerPolicy{MaxPerPodContainer: 1, MaxContainers: -1}
}

// Validate returns what is wrong with the policy. Source: NewContainerGC in pkg/kubelet/container/container_gc.go.
func (p ContainerPolicy) Validate() error {
	if p.MinAge < 0 {
		return fmt.Errorf("container policy: MinAge: %s must not be negative", p.MinAge)
	}
	return nil
}

// PodState is how a pod is to those who have pods.
type PodState uint8

// The states of a pod. The kubelet's pod workers know the last three: nothing, ShouldPodRuntimeBeRemoved and
// ShouldPodContentBeRemoved.
const (
	PodActive     PodState = iota // it may run: the limits of the policy count
	PodOwned                      // somebody else removes what is left of it, and nothing is removed here
	PodTerminated                 // nothing of it runs, or will; what it has left may be asked for, and goes only where room is needed
	PodRemoved                    // nobody wants it, and nothing of it runs: all that it has left goes
)

// String returns "active", "owned", "terminated" or "removed".
func (s PodState) String() string {
	names := [...]string{"active", "owned", "terminated", "removed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprint(uint8(s))
}

// OwnedBy returns a function for ContainerOptions.Pod and ContainerState.Pod: a pod that has an owner is PodOwned, as is what the
// runtime has of no pod at all, and every other one is PodRemoved. The Owned of a lifecycle.Reconciler says who has one.
func OwnedBy(owned func(uid string) bool) func(uid string) PodState {
	return func(uid string) PodState {
		if uid == "" || owned(uid) {
			return PodOwned
		}
		return PodRemoved
	}
}

// ContainerState is what [PlanContainers] and [PlanSandboxes] decide by.
type ContainerState struct {
	Snapshot cri.Snapshot
	Now      time.Time
	// Pod says how a pod is. Nil: all are PodActive.
	Pod func(uid string) PodState
	// Mine reports by their labels which containers and sandboxes may be removed. Nil: all may.
	Mine func(labels map[string]string) bool
	// NotReady says that there may be pods that nobody knows of yet: no containers go because their pod was removed.
	NotReady bool
	// Unused says that also what terminated pods have left is to go, as room is needed.
	Unused bool
}

// Removal is a container or a sandbox that is to go.
type Removal struct {
	ID, PodUID string
	Name       string   // of the container
	Pod        PodState // that it is planned by
	Stop       bool     // whether it runs is not known, so that it is stopped first
	Why        string   // for logs
}

// pod returns how a pod is.
func (s *ContainerState) pod(uid string) PodState {
	if s.Pod == nil {
		return PodActive
	}
	return s.Pod(uid)
}

func (s *ContainerState) mine(labels map[string]string) bool { return s.Mine == nil || s.Mine(labels) }

// goes reports whether all that is left of a pod in that state is to go.
func (s *ContainerState) goes(pod PodState) bool {
	return pod == PodRemoved || s.Unused && pod == PodTerminated
}

// unit is the instances of one container of a pod that may go, the newest first.
type unit struct {
	pod       PodState
	instances []*cri.Container
}

// PlanContainers decides which containers go, in the order in which they do: all of pods that were removed, then what is above the
// limits of the policy, oldest first. What runs stays. It is pure, and its plan does not depend on the order of the snapshot.
// Source: evictContainers in pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func PlanContainers(p ContainerPolicy, s ContainerState) []Removal {
	var out []Removal
	units := s.units(p.MinAge)
	total := 0
	for i := range units {
		u := &units[i]
		if !s.NotReady && s.goes(u.pod) {
			out = u.cut(out, 0, "its pod was removed or has terminated")
		}
		if p.MaxPerPodContainer >= 0 {
			out = u.cut(out, p.MaxPerPodContainer, "there are newer instances of it")
		}
		total += len(u.instances)
	}
	if p.MaxContainers < 0 || total <= p.MaxContainers {
		return out
	}
	const many = "there are too many containers on the node"
	left := slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return !s.NotReady && s.goes(u.pod) })
	each := max(1, p.MaxContainers/max(1, len(left)))
	all := unit{}
	for i := range left {
		out = left[i].cut(out, each, many)
		all.instances = append(all.instances, left[i].instances...)
	}
	slices.SortFunc(all.instances, newestFirst)
	for i := len(all.instances) - 1; i >= p.MaxContainers; i-- {
		out = append(out, removalOf(all.instances[i], s.pod(all.instances[i].PodUID), many))
	}
	return out
}

// units returns the containers that may go.
func (s *ContainerState) units(minAge time.Duration) (units []unit) {
	type key struct{ uid, name string }
	index, pods := map[key]int{}, map[string]PodState{}
	latest := s.Now.Add(-minAge)
	for i := range s.Snapshot.Containers {
		c := &s.Snapshot.Containers[i]
		if c.State == cri.ContainerRunning || latest.Before(c.CreatedAt) || !s.mine(c.Labels) {
			continue
		}
		pod, known := pods[c.PodUID]
		if !known {
			pod = s.pod(c.PodUID)
			pods[c.PodUID] = pod
		}
		if pod == PodOwned {
			continue
		}
		at, known := index[key{c.PodUID, c.Name}]
		if !known {
			at = len(units)
			index[key{c.PodUID, c.Name}] = at
			units = append(units, unit{pod: pod})
		}
		units[at].instances = append(units[at].instances, c)
	}
	for i := range units {
		slices.SortFunc(units[i].instances, newestFirst)
	}
	slices.SortFunc(units, func(a, b unit) int { return byName(a.instances[0], b.instances[0]) })
	return units
}

// cut plans the removal of all instances but the newest, the oldest first.
func (u *unit) cut(out []Removal, keep int, why string) []Removal {
	for i := len(u.instances) - 1; i >= keep; i-- {
		out = append(out, removalOf(u.instances[i], u.pod, why))
	}
	u.instances = u.instances[:min(keep, len(u.instances))]
	return out
}

// removalOf returns the removal of a container.
func removalOf(c *cri.Container, pod PodState, why string) Removal {
	return Removal{ID: c.ID, PodUID: c.PodUID, Name: c.Name, Pod: pod, Stop: c.State == cri.ContainerUnknown, Why: why}
}

func newestFirst(a, b *cri.Container) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.ID, a.ID))
}

func byName(a, b *cri.Container) int {
	return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Name, b.Name))
}

// PlanSandboxes decides which sandboxes go: of a pod that was removed all, of others all but the newest, and none that is ready or
// holds a container. It is pure. Source: evictSandboxes in pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func PlanSandboxes(s ContainerState) []Removal {
	holds := make(map[string]bool, len(s.Snapshot.Containers))
	for i := range s.Snapshot.Containers {
		holds[s.Snapshot.Containers[i].SandboxID] = true
	}
	byPod := map[string][]*cri.Sandbox{}
	for i := range s.Snapshot.Sandboxes {
		if sb := &s.Snapshot.Sandboxes[i]; s.mine(sb.Labels) {
			byPod[sb.Pod.UID] = append(byPod[sb.Pod.UID], sb)
		}
	}
	var out []Removal
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		pod, keep, why := s.pod(uid), 1, "there is a newer sandbox of its pod"
		if pod == PodOwned {
			continue
		}
		if s.goes(pod) {
			keep, why = 0, "its pod was removed or has terminated"
		}
		sandboxes := byPod[uid]
		slices.SortFunc(sandboxes, func(a, b *cri.Sandbox) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.ID, a.ID))
		})
		for _, sb := range slices.Backward(sandboxes[keep:]) {
			if sb.State != cri.SandboxReady && !holds[sb.ID] {
				out = append(out, Removal{ID: sb.ID, PodUID: uid, Pod: pod, Why: why})
			}
		}
	}
	return out
}
