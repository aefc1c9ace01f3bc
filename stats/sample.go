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

// Sample is what the kernel counts for a cgroup of a pod or of the node, for metrics.
type Sample struct {
	Pod       cri.PodIdentity // zero for a cgroup that is of no pod
	Sandbox   cri.Sandbox     // of Pod
	Container cri.Container   // zero for the cgroups of a whole pod and of its sandbox, and of no pod
	Path      cgroups.Path
	Leaf      string // the name of the cgroup in Path; empty: Path itself
	Time      time.Time
	Stats     cgroups.Stats
	// Interfaces is the traffic of the pod or of the node, which the sample of the whole has. Nil: not known.
	Interfaces []Interface
}

// Samples returns the numbers of the kernel as they are: of the node, of all pods together and by QoS class, and of each pod with
// its sandbox, which has a Leaf and no Container, and its running containers. What cannot be read is missing, and named by the
// error.
func (k *Collector) Samples(ctx context.Context, parts cgroups.Parts) ([]Sample, error) {
	var f failures
	var all []Sample
	n := k.node(ctx, parts, true, &f)
	for _, class := range []cgroups.QOS{cgroups.Burstable, cgroups.BestEffort} {
		p := cgroups.QOSPath(k.opts.CgroupRoot, class)
		n.cgroups["\x00"+string(p)] = k.sample(ctx, p, "", parts, &f) // no system container has such a name
	}
	for _, s := range slices.SortedFunc(maps.Values(n.cgroups), func(a, b sampled) int { return cmp.Compare(a.path, b.path) }) {
		if s.found {
			all = append(all, Sample{Path: s.path, Leaf: s.leaf, Time: s.at, Stats: s.stats})
		}
	}
	if len(all) > 0 && all[0].Path == "" {
		all[0].Interfaces = n.interfaces
	}
	pods := k.pods(ctx, parts, parts|cgroups.PartProcs, &f)
	for i := range pods {
		p := &pods[i]
		if p.sandbox.ID == "" { // metrics are of pods with names
			continue
		}
		if !parts.Has(cgroups.PartProcs) { // nobody has asked for those by which the network was found
			p.pause.stats.Pids.Procs = nil
		}
		all = p.samples(all)
	}
	return all, f.join()
}

// samples adds the samples of a pod.
func (p *pod) samples(all []Sample) []Sample {
	of := func(leaf string, c cri.Container, at time.Time, s cgroups.Stats) Sample {
		return Sample{Pod: p.PodIdentity, Sandbox: p.sandbox, Container: c, Path: p.path, Leaf: leaf, Time: at, Stats: s}
	}
	if p.found {
		whole := of("", cri.Container{}, p.at, p.stats)
		whole.Interfaces = p.interfaces
		all = append(all, whole)
	}
	if s := p.pause; s.found {
		all = append(all, of(p.leaf, cri.Container{}, s.at, s.stats))
	}
	for _, c := range p.containers {
		if c.found {
			all = append(all, of(c.leaf, c.Container, c.at, c.stats))
		}
	}
	return all
}
