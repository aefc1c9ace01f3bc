// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// pod is a running pod with the counters of its cgroup.
type pod struct {
	cri.PodIdentity
	sandbox       cri.Sandbox // zero for a pod that the runtime has not listed
	path          cgroups.Path
	leaf          string       // cgroup name of the sandbox below path; empty: none
	sandboxSample cgroupSample // cgroup of the sandbox; zero if no caller needs it
	found         bool         // its cgroup was sampled
	at            time.Time
	stats         cgroups.Stats
	containers    []container
	interfaces    []Interface // nil: not read
	networkAt     time.Time
}

// container is a running container with the counters of its cgroup.
type container struct {
	cri.Container
	leaf    string
	found   bool // its cgroup was sampled
	at      time.Time
	stats   cgroups.Stats
	runtime *cri.ContainerStats // measured by the runtime; nil: not measured
}

// listPods returns the pods in the list of the runtime. With an error, the list may be older than maxAge.
func (k *Collector) listPods(ctx context.Context, maxAge time.Duration) (cri.Snapshot, error) {
	last, at := k.list.lastResult()
	if !at.IsZero() && time.Since(at) < maxAge {
		return last, nil
	}
	s, err := k.list.callAndWait(ctx, k.opts.Timeout, func() (cri.Snapshot, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*k.opts.Timeout)
		defer cancel()
		return k.lister.List(ctx)
	})
	if err == nil {
		return s, nil
	}
	if !at.IsZero() {
		err = fmt.Errorf("%w (the list of %v ago is used)", err, time.Since(at).Round(time.Second))
	}
	return last, &Error{Source: "runtime", Object: "list", Err: err}
}

// minListAge is the shortest time between two pod lists. If a pod cgroup is missing in an older list, the list is read again.
const minListAge = time.Second

// samplePods returns all running pods with these counters of their cgroups, sorted by namespace and name. With
// [cgroups.PartProcs] in sandboxParts, it also reads the network traffic.
func (k *Collector) samplePods(ctx context.Context, parts, sandboxParts cgroups.Parts, errs *failures) []pod {
	snapshot, err := k.listPods(ctx, k.opts.RuntimePeriod)
	paths := k.listPodCgroups(ctx, errs)
	if err == nil && hasUnlistedPod(snapshot, paths) {
		snapshot, err = k.listPods(ctx, minListAge)
	}
	k.leaves.retainPods(paths)
	var sampleErrs failures
	pods := k.sampleListed(ctx, snapshot, paths, err, parts, sandboxParts, &sampleErrs)
	if err == nil && hasListedExit(pods) {
		var newer cri.Snapshot
		if newer, err = k.listPods(ctx, minListAge); err == nil && !newer.Time.Equal(snapshot.Time) {
			sampleErrs = failures{}
			pods = k.sampleListed(ctx, newer, paths, nil, parts, sandboxParts, &sampleErrs)
		}
	}
	if err != nil {
		errs.all = append(errs.all, err)
	}
	errs.addAll(&sampleErrs)
	return pods
}

// sampleListed returns the pods with a running container in snapshot, with the counters of their cgroups in paths. If listErr
// is not nil, snapshot is old, and the result includes the pods in paths that are missing in snapshot.
func (k *Collector) sampleListed(
	ctx context.Context, snapshot cri.Snapshot, paths map[string]cgroups.Path, listErr error, parts, sandboxParts cgroups.Parts, errs *failures,
) []pod {
	pods := runningPods(snapshot)
	if listErr != nil {
		pods = append(pods, unlistedPods(pods, paths)...)
	}
	for i := range pods {
		if hasEnded(ctx) {
			errs.addError("cgroup", "", context.Cause(ctx))
			return pods[:i]
		}
		p := &pods[i]
		if path, ok := paths[p.UID]; ok {
			p.path = path
			k.samplePod(ctx, p, parts, sandboxParts, errs)
		}
	}
	return pods
}

// hasListedExit reports whether a container in pods has no cgroup although its pod has a cgroup. The container may have exited
// after the snapshot. Its measurement by the runtime, which is as old, must not stand for a pod that waits for a restart: the
// eviction prefers pods without a running container as victims.
func hasListedExit(pods []pod) bool {
	return slices.ContainsFunc(pods, func(p pod) bool {
		return p.found && slices.ContainsFunc(p.containers, func(c container) bool { return !c.found })
	})
}

// listPodCgroups returns the cgroups of all pods, by pod UID.
func (k *Collector) listPodCgroups(ctx context.Context, errs *failures) map[string]cgroups.Path {
	paths := map[string]cgroups.Path{}
	for _, class := range []cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort} {
		dir := cgroups.QOSPath(k.opts.CgroupRoot, class)
		names, err := k.cgroups.Children(ctx, dir)
		if err != nil && !isRemoved(err) {
			errs.addError("cgroup", dir.Cgroupfs(), err)
		}
		for _, name := range names {
			path := dir.Join(name)
			if uid, ok := cgroups.PodUID(k.opts.CgroupRoot, path); ok {
				paths[uid] = path
			}
		}
	}
	return paths
}

// hasUnlistedPod reports whether a pod with a cgroup has no running container in the snapshot, for example because it started
// later.
func hasUnlistedPod(snapshot cri.Snapshot, paths map[string]cgroups.Path) bool {
	runs := make(map[string]bool, len(snapshot.Sandboxes)) // by sandbox
	for i := range snapshot.Containers {
		if snapshot.Containers[i].State == cri.ContainerRunning {
			runs[snapshot.Containers[i].SandboxID] = true
		}
	}
	explained := make(map[string]bool, len(snapshot.Sandboxes))
	for i := range snapshot.Sandboxes {
		if runs[snapshot.Sandboxes[i].ID] {
			explained[snapshot.Sandboxes[i].Pod.UID] = true
		}
	}
	for uid := range paths {
		if !explained[uid] {
			return true // the measurement must include it: the eviction prefers pods without one
		}
	}
	return false
}

// unlistedPods returns a pod with only a UID for each pod cgroup that is missing in pods. Evictions need only its cgroup.
func unlistedPods(pods []pod, paths map[string]cgroups.Path) (more []pod) {
	listed := make(map[string]bool, len(pods))
	for i := range pods {
		listed[pods[i].UID] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(paths)) {
		if !listed[uid] {
			more = append(more, pod{PodIdentity: cri.PodIdentity{UID: uid}})
		}
	}
	return more
}

// runningPods returns the pods with a running container, sorted by namespace and name. Source:
// pkg/kubelet/stats/cri_stats_provider.go.
func runningPods(snapshot cri.Snapshot) []pod {
	run := make(map[string]int, len(snapshot.Sandboxes)) // containers by sandbox
	for i := range snapshot.Containers {
		if snapshot.Containers[i].State == cri.ContainerRunning {
			run[snapshot.Containers[i].SandboxID]++
		}
	}
	pods := make([]pod, 0, len(run))
	at := make(map[string]int, len(run)) // among pods, by sandbox
	for same := range sandboxesByName(snapshot.Sandboxes) {
		for _, sandbox := range currentSandboxes(same) { // the ready sandboxes of a pod name, or the newest
			if n := run[sandbox.ID]; n > 0 {
				at[sandbox.ID] = len(pods)
				pods = append(pods, pod{PodIdentity: sandbox.Pod, sandbox: *sandbox, containers: make([]container, 0, n)})
			}
		}
	}
	for i := range snapshot.Containers {
		c := &snapshot.Containers[i]
		if p, ok := at[c.SandboxID]; ok && c.State == cri.ContainerRunning {
			pods[p].containers = append(pods[p].containers, container{Container: *c})
		}
	}
	for i := range pods {
		slices.SortFunc(pods[i].containers, func(a, b container) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
	}
	return pods
}

// sandboxesByName yields groups of sandboxes with the same namespace and name of the pod, sorted by these names and the sandbox
// ID.
func sandboxesByName(sandboxes []cri.Sandbox) iter.Seq[[]*cri.Sandbox] {
	all := make([]*cri.Sandbox, len(sandboxes))
	for i := range sandboxes {
		all[i] = &sandboxes[i]
	}
	slices.SortFunc(all, func(a, b *cri.Sandbox) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.ID, b.ID))
	})
	return func(yield func([]*cri.Sandbox) bool) {
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].Pod.Namespace == all[0].Pod.Namespace && all[n].Pod.Name == all[0].Pod.Name {
				n++
			}
			if !yield(all[:n:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// currentSandboxes returns the ready sandboxes of pods with the same name. If none is ready, it returns only the newest
// sandbox.
func currentSandboxes(sandboxes []*cri.Sandbox) []*cri.Sandbox {
	if len(sandboxes) == 1 {
		return sandboxes
	}
	ready := slices.DeleteFunc(slices.Clone(sandboxes), func(s *cri.Sandbox) bool { return s.State != cri.SandboxReady })
	if len(ready) > 0 {
		return ready
	}
	return []*cri.Sandbox{slices.MaxFunc(sandboxes, func(a, b *cri.Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})}
}

// samplePod stores these counters of a pod's cgroup, containers and sandbox in p. With PartProcs in sandboxParts, it also reads
// the network traffic.
func (k *Collector) samplePod(ctx context.Context, p *pod, parts, sandboxParts cgroups.Parts, errs *failures) {
	s := k.sampleCgroup(ctx, p.path, "", parts, errs)
	if !s.found {
		return
	}
	p.found, p.at, p.stats = true, s.at, s.stats
	if p.sandbox.ID == "" {
		return
	}
	leaves := k.listLeaves(ctx, p, errs)
	for i := range p.containers {
		c := &p.containers[i]
		if c.leaf = leaves[c.ID]; c.leaf == "" {
			continue
		}
		if s := k.sampleCgroup(ctx, p.path, c.leaf, parts, errs); s.found {
			c.found, c.at, c.stats = true, s.at, s.stats
		} else {
			k.leaves.removePod(p.path)
		}
	}
	if p.leaf = leaves[p.sandbox.ID]; p.leaf != "" && sandboxParts != 0 {
		if p.sandboxSample = k.sampleCgroup(ctx, p.path, p.leaf, sandboxParts, errs); !p.sandboxSample.found {
			k.leaves.removePod(p.path)
		}
	}
	if sandboxParts.Has(cgroups.PartProcs) {
		if pid := k.networkProcess(ctx, p, errs); pid != 0 {
			k.readNetwork(p, strconv.Itoa(pid), errs)
		}
	}
}

// networkProcess returns the ID of a process in the network namespace of pod p, or zero.
func (k *Collector) networkProcess(ctx context.Context, p *pod, errs *failures) int {
	if procs := p.sandboxSample.stats.Pids.Procs; len(procs) > 0 {
		return procs[0]
	}
	// Sandboxes of CRI-O have no process by default (option drop_infra_ctr).
	for i := range p.containers {
		c := &p.containers[i]
		if !c.found {
			continue
		}
		procs := c.stats.Pids.Procs
		if procs == nil {
			procs = k.sampleCgroup(ctx, p.path, c.leaf, cgroups.PartProcs, errs).stats.Pids.Procs
		}
		if len(procs) > 0 {
			return procs[0]
		}
	}
	return 0
}

// listLeaves returns the cgroup names of a pod's containers and sandboxes by ID, from the cache if it has them all.
func (k *Collector) listLeaves(ctx context.Context, p *pod, errs *failures) map[string]string {
	known := k.leaves.podLeaves(p.path)
	unknown := func(c container) bool { return known[c.ID] == "" }
	if known[p.sandbox.ID] != "" && !slices.ContainsFunc(p.containers, unknown) {
		return known
	}
	names, err := k.cgroups.ChildDirs(ctx, p.path)
	if err != nil && !isRemoved(err) {
		errs.addError("cgroup", p.path.Cgroupfs(), err)
	}
	return k.leaves.setLeaves(p.path, names)
}

// readNetwork reads the network traffic in the network namespace of the process pid, and stores it in p.
func (k *Collector) readNetwork(p *pod, pid string, errs *failures) {
	at := time.Now()
	all, err := k.proc.readInterfaces(pid)
	switch {
	case err == nil:
		p.interfaces, p.networkAt = all, at
	case !isRemoved(err):
		errs.addError("proc", pid+"/net/dev", err)
	}
}

// addRuntimeStats adds the measurements of the runtime to containers: writable layers, and CPU and memory without a cgroup.
func (k *Collector) addRuntimeStats(ctx context.Context, pods []pod, errs *failures) {
	if k.layers == nil || len(pods) == 0 {
		return
	}
	last, at := k.runtimeStats.lastResult()
	if at.IsZero() || time.Since(at) >= k.opts.RuntimePeriod {
		all, err := k.runtimeStats.callAndWait(ctx, k.opts.Timeout, func() (map[string]cri.ContainerStats, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*k.opts.Timeout)
			defer cancel()
			list, err := k.layers.ContainerStats(ctx)
			byID := make(map[string]cri.ContainerStats, len(list))
			for _, s := range list {
				byID[s.ID] = s
			}
			return byID, err
		})
		if err != nil {
			errs.addError("runtime", "container stats", err)
		} else {
			last = all
		}
	}
	for i := range pods {
		p := &pods[i]
		for j := range p.containers {
			if s, ok := last[p.containers[j].ID]; ok {
				p.containers[j].runtime = &s
			}
		}
	}
}

// dropUnmeasured removes the containers without a measurement, which have exited since the list, and then pods without
// containers.
func dropUnmeasured(pods []pod) []pod {
	for i := range pods {
		pods[i].containers = slices.DeleteFunc(pods[i].containers, func(c container) bool { return !c.found && c.runtime == nil })
	}
	return slices.DeleteFunc(pods, func(p pod) bool {
		// A pod that the runtime has not listed may have a measured cgroup.
		return len(p.containers) == 0 && (p.sandbox.ID != "" || !p.found)
	})
}

// hasContainerWithoutCgroup reports whether pods include a container without cgroup counters. Such a container must be
// measured by the runtime.
func hasContainerWithoutCgroup(pods []pod) bool {
	return slices.ContainsFunc(pods, func(p pod) bool {
		return slices.ContainsFunc(p.containers, func(c container) bool { return !c.found })
	})
}
