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

// pod is a pod that runs, with what the kernel counts for it.
type pod struct {
	cri.PodIdentity
	sandbox    cri.Sandbox // zero for a pod that is not in the list of the runtime
	path       cgroups.Path
	leaf       string  // of the sandbox in path; empty: it has none
	pause      sampled // the cgroup of the sandbox, if somebody wants to know
	found      bool    // it has a cgroup, which was sampled
	at         time.Time
	stats      cgroups.Stats
	containers []container
	interfaces []Interface // nil: not known
	networkAt  time.Time
}

// container is a running container.
type container struct {
	cri.Container
	leaf    string
	found   bool // it has a cgroup, which was sampled
	at      time.Time
	stats   cgroups.Stats
	runtime *cri.ContainerStats // what the runtime has measured; nil: nothing
}

// snapshot returns the list of the runtime, which is not older than that unless the runtime does not answer.
func (k *Collector) snapshot(ctx context.Context, age time.Duration) (cri.Snapshot, error) {
	last, at := k.list.known()
	if !at.IsZero() && time.Since(at) < age {
		return last, nil
	}
	s, err := k.list.ask(ctx, k.opts.Timeout, func() (cri.Snapshot, error) {
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

// relist is how old a list is at least before it is made anew for a cgroup that it does not explain.
const relist = time.Second

// pods returns the pods that run, with their containers, in order of their namespaces and names. The parts of sandboxes that are
// read are others; with [cgroups.PartProcs] among them, pods have the traffic of their networks.
func (k *Collector) pods(ctx context.Context, parts, sandbox cgroups.Parts, f *failures) []pod {
	snapshot, err := k.snapshot(ctx, k.opts.RuntimePeriod)
	paths := k.podPaths(ctx, f)
	if err == nil && unexplained(snapshot, paths) {
		snapshot, err = k.snapshot(ctx, relist)
	}
	if err != nil {
		f.all = append(f.all, err)
	}
	k.leaves.keep(paths)
	pods := running(snapshot)
	if err != nil {
		pods = append(pods, unlisted(pods, paths)...)
	}
	for i := range pods {
		if ended(ctx) {
			f.add("cgroup", "", context.Cause(ctx))
			return pods[:i]
		}
		p := &pods[i]
		if path, ok := paths[p.UID]; ok {
			p.path = path
			k.samplePod(ctx, p, parts, sandbox, f)
		}
	}
	return pods
}

// podPaths returns the cgroups of pods, by the UIDs of the pods.
func (k *Collector) podPaths(ctx context.Context, f *failures) map[string]cgroups.Path {
	paths := map[string]cgroups.Path{}
	for _, class := range []cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort} {
		dir := cgroups.QOSPath(k.opts.CgroupRoot, class)
		names, err := k.cgroups.Children(ctx, dir)
		if err != nil && !gone(err) {
			f.add("cgroup", dir.Cgroupfs(), err)
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

// unexplained reports whether there is the cgroup of a pod of which a list has no running container, which may have been started since.
// A pod that is not in a summary counts as not measured, and such pods are evicted first.
func unexplained(s cri.Snapshot, paths map[string]cgroups.Path) bool {
	runs := make(map[string]bool, len(s.Sandboxes)) // by sandbox
	for i := range s.Containers {
		if s.Containers[i].State == cri.ContainerRunning {
			runs[s.Containers[i].SandboxID] = true
		}
	}
	explained := make(map[string]bool, len(s.Sandboxes))
	for i := range s.Sandboxes {
		if runs[s.Sandboxes[i].ID] {
			explained[s.Sandboxes[i].Pod.UID] = true
		}
	}
	for uid := range paths {
		if !explained[uid] {
			return true
		}
	}
	return false
}

// unlisted returns the pods that have a cgroup and are not in a list, as the runtime did not answer after they had been started. Of
// these only the UID is known, and what they use as a whole: whoever looks for what takes the memory needs no more.
func unlisted(pods []pod, paths map[string]cgroups.Path) (more []pod) {
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

// running returns the pods with a container that runs, in order of their namespaces and names. Of sandboxes with the same name, those
// that are ready count, or else the newest, as in pkg/kubelet/stats/cri_stats_provider.go.
func running(s cri.Snapshot) []pod {
	run := make(map[string]int, len(s.Sandboxes)) // containers by sandbox
	for i := range s.Containers {
		if s.Containers[i].State == cri.ContainerRunning {
			run[s.Containers[i].SandboxID]++
		}
	}
	pods := make([]pod, 0, len(run))
	at := make(map[string]int, len(run)) // among pods, by sandbox
	for same := range named(s.Sandboxes) {
		for _, sandbox := range current(same) {
			if n := run[sandbox.ID]; n > 0 {
				at[sandbox.ID] = len(pods)
				pods = append(pods, pod{PodIdentity: sandbox.Pod, sandbox: *sandbox, containers: make([]container, 0, n)})
			}
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
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

// named returns the sandboxes of each name, in order of the names and then of their IDs.
func named(sandboxes []cri.Sandbox) iter.Seq[[]*cri.Sandbox] {
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

// current returns the sandboxes of one name that count.
func current(all []*cri.Sandbox) []*cri.Sandbox {
	if len(all) == 1 {
		return all
	}
	ready := slices.DeleteFunc(slices.Clone(all), func(s *cri.Sandbox) bool { return s.State != cri.SandboxReady })
	if len(ready) > 0 {
		return ready
	}
	return []*cri.Sandbox{slices.MaxFunc(all, func(a, b *cri.Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})}
}

// samplePod reads the cgroup of a pod, those of its containers, and some parts of that of its sandbox.
func (k *Collector) samplePod(ctx context.Context, p *pod, parts, sandbox cgroups.Parts, f *failures) {
	s := k.sample(ctx, p.path, "", parts, f)
	if !s.found {
		return
	}
	p.found, p.at, p.stats = true, s.at, s.stats
	if p.sandbox.ID == "" {
		return
	}
	leaves := k.leavesOf(ctx, p, f)
	for i := range p.containers {
		c := &p.containers[i]
		if c.leaf = leaves[c.ID]; c.leaf == "" {
			continue
		}
		if s := k.sample(ctx, p.path, c.leaf, parts, f); s.found {
			c.found, c.at, c.stats = true, s.at, s.stats
		} else {
			k.leaves.forget(p.path)
		}
	}
	if p.leaf = leaves[p.sandbox.ID]; p.leaf != "" && sandbox != 0 {
		if p.pause = k.sample(ctx, p.path, p.leaf, sandbox, f); !p.pause.found {
			k.leaves.forget(p.path)
		}
	}
	if sandbox.Has(cgroups.PartProcs) {
		if pid := k.processOf(ctx, p, f); pid != 0 {
			k.network(p, strconv.Itoa(pid), f)
		}
	}
}

// processOf returns the ID of a process in the network namespace of a pod: of its sandbox, or of a container where the sandbox has no
// process, as on CRI-O by default (drop_infra_ctr). Zero: the pod has no process.
func (k *Collector) processOf(ctx context.Context, p *pod, f *failures) int {
	if procs := p.pause.stats.Pids.Procs; len(procs) > 0 {
		return procs[0]
	}
	for i := range p.containers {
		c := &p.containers[i]
		if !c.found {
			continue
		}
		procs := c.stats.Pids.Procs
		if procs == nil {
			procs = k.sample(ctx, p.path, c.leaf, cgroups.PartProcs, f).stats.Pids.Procs
		}
		if len(procs) > 0 {
			return procs[0]
		}
	}
	return 0
}

// leavesOf returns the cgroups in that of a pod, by container or sandbox: as remembered, unless one is not known there.
func (k *Collector) leavesOf(ctx context.Context, p *pod, f *failures) map[string]string {
	known := k.leaves.of(p.path)
	unknown := func(c container) bool { return known[c.ID] == "" }
	if known[p.sandbox.ID] != "" && !slices.ContainsFunc(p.containers, unknown) {
		return known
	}
	names, err := k.cgroups.ChildDirs(ctx, p.path)
	if err != nil && !gone(err) {
		f.add("cgroup", p.path.Cgroupfs(), err)
	}
	return k.leaves.set(p.path, names)
}

// network reads the traffic in the network namespace of a process of the sandbox of a pod.
func (k *Collector) network(p *pod, pid string, f *failures) {
	at := time.Now()
	all, err := k.proc.interfaces(pid)
	switch {
	case err == nil:
		p.interfaces, p.networkAt = all, at
	case !gone(err):
		f.add("proc", pid+"/net/dev", err)
	}
}

// layersOf adds what the runtime has measured: for the writable layers, and in whole for containers without a cgroup.
func (k *Collector) layersOf(ctx context.Context, pods []pod, f *failures) {
	if k.layers == nil || len(pods) == 0 {
		return
	}
	last, at := k.measured.known()
	if at.IsZero() || time.Since(at) >= k.opts.RuntimePeriod {
		all, err := k.measured.ask(ctx, k.opts.Timeout, func() (map[string]cri.ContainerStats, error) {
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
			f.add("runtime", "container stats", err)
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

// measuredOnly drops what nobody has measured: a container whose cgroup went since the list was made has exited. A pod that is not
// in the list has no containers.
func measuredOnly(pods []pod) []pod {
	for i := range pods {
		pods[i].containers = slices.DeleteFunc(pods[i].containers, func(c container) bool { return !c.found && c.runtime == nil })
	}
	return slices.DeleteFunc(pods, func(p pod) bool {
		return len(p.containers) == 0 && (p.sandbox.ID != "" || !p.found)
	})
}

// lacking reports whether a container has no cgroup.
func lacking(pods []pod) bool {
	return slices.ContainsFunc(pods, func(p pod) bool {
		return slices.ContainsFunc(p.containers, func(c container) bool { return !c.found })
	})
}
