// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// Sample has the kernel's counters of one cgroup, for metrics. The cgroup belongs to the node, a pod or a container.
type Sample struct {
	Pod       cri.PodIdentity // zero for a cgroup outside of the pods
	Sandbox   cri.Sandbox     // of Pod
	Container cri.Container   // zero unless the cgroup is that of a container
	Path      cgroups.Path
	Leaf      string // name of the cgroup below Path; empty means Path itself
	Time      time.Time
	Stats     cgroups.Stats
	// Interfaces is the network traffic, in the samples of the node and of whole pods. Nil: not read.
	Interfaces []Interface
}

// Samples returns the counters of parts for the cgroups of the node, the system containers, all pods, the QoS classes
// Burstable and BestEffort, each pod, its sandbox and its running containers. The error names the cgroups that could not be
// read, which are missing in the result.
func (k *Collector) Samples(ctx context.Context, parts cgroups.Parts) ([]Sample, error) {
	var errs failures
	var all []Sample
	n := k.sampleNode(ctx, parts, true, &errs)
	for _, class := range []cgroups.QOS{cgroups.Burstable, cgroups.BestEffort} {
		p := cgroups.QOSPath(k.opts.CgroupRoot, class)
		n.cgroups["\x00"+string(p)] = k.sampleCgroup(ctx, p, "", parts, &errs) // not the name of a system container
	}
	for _, s := range slices.SortedFunc(maps.Values(n.cgroups), func(a, b cgroupSample) int { return cmp.Compare(a.path, b.path) }) {
		if s.found {
			all = append(all, Sample{Path: s.path, Leaf: s.leaf, Time: s.at, Stats: s.stats})
		}
	}
	if len(all) > 0 && all[0].Path == "" {
		all[0].Interfaces = n.interfaces
	}
	pods := k.samplePods(ctx, parts, parts|cgroups.PartProcs, &errs)
	for i := range pods {
		p := &pods[i]
		if p.sandbox.ID == "" { // metrics need the pod name
			continue
		}
		if !parts.Has(cgroups.PartProcs) { // read only to find the network namespace
			p.sandboxSample.stats.Pids.Procs = nil
		}
		all = p.appendSamples(all)
	}
	return all, errs.joinErrors()
}

// appendSamples appends the samples of a pod's cgroup, sandbox and containers to all. It returns the extended slice.
func (p *pod) appendSamples(all []Sample) []Sample {
	of := func(leaf string, c cri.Container, at time.Time, s cgroups.Stats) Sample {
		return Sample{Pod: p.PodIdentity, Sandbox: p.sandbox, Container: c, Path: p.path, Leaf: leaf, Time: at, Stats: s}
	}
	if p.found {
		whole := of("", cri.Container{}, p.at, p.stats)
		whole.Interfaces = p.interfaces
		all = append(all, whole)
	}
	if s := p.sandboxSample; s.found {
		all = append(all, of(p.leaf, cri.Container{}, s.at, s.stats))
	}
	for _, c := range p.containers {
		if c.found {
			all = append(all, of(c.leaf, c.Container, c.at, c.stats))
		}
	}
	return all
}
