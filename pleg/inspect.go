// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// job is the work on one pod that asks the runtime: to list the pod, to inspect it, or both.
type job struct {
	rec        *podRecord
	published  cri.Pod // the last complete state, whose details are carried over
	listed     cri.Pod // what to inspect, where relist is false
	relist     bool
	inspectAll bool   // inspect every object
	clock      uint64 // when the listing began, on the loop's clock
	started    time.Time
}

// result is the end of a job.
type result struct {
	job
	pod       cri.Pod // complete; only what was listed where err is set
	listedPod bool    // pod is valid
	ended     time.Time
	err       error
}

// work does a job. The deadline is of the whole job; release gives the job's slot back, which happens earlier
// than its end where the runtime is slow: jobs that hang must not keep others from being done.
func (g *Generator) runJob(ctx context.Context, j job, release func()) result {
	defer release()
	defer time.AfterFunc(slowAfter, release).Stop()
	ctx, cancel := context.WithTimeout(ctx, g.opts.PodTimeout)
	defer cancel()
	g.health.startAttempt(j.rec.uid, j.started)
	r := result{job: j, pod: j.listed, listedPod: true}
	if j.relist {
		g.health.setCall(j.rec.uid, "ListPod", j.rec.uid)
		r.pod, r.err = g.podLister.ListPod(ctx, j.rec.uid)
		r.pod.UID, r.pod.Time = j.rec.uid, j.started
		r.listedPod = r.err == nil
	}
	if r.err == nil {
		var full cri.Pod
		if full, r.err = g.inspectPod(ctx, r.pod, j.published, j.inspectAll); r.err == nil {
			r.pod = full
		}
	}
	r.ended = time.Now()
	return r
}

// complete returns the listed pod with the details of each object: read from the runtime where they may have
// changed, else carried over from what was told before. An object that is gone by now is left out.
func (g *Generator) inspectPod(ctx context.Context, listed, published cri.Pod, inspectAll bool) (cri.Pod, error) {
	if g.inspector == nil {
		return keepLostFields(listed, published), nil
	}
	var err error
	full := listed
	if full.Sandboxes, err = g.inspectSandboxes(ctx, listed, published, inspectAll); err != nil {
		return cri.Pod{}, err
	}
	if full.Containers, err = g.inspectContainers(ctx, listed, published, inspectAll); err != nil {
		return cri.Pod{}, err
	}
	return keepLostFields(full, published), nil
}

func (g *Generator) inspectSandboxes(ctx context.Context, listed, published cri.Pod, inspectAll bool) ([]cri.Sandbox, error) {
	before := make(map[string]*cri.Sandbox, len(published.Sandboxes))
	for i := range published.Sandboxes {
		before[published.Sandboxes[i].ID] = &published.Sandboxes[i]
	}
	full := make([]cri.Sandbox, 0, len(listed.Sandboxes))
	for _, sb := range listed.Sandboxes {
		if b, ok := before[sb.ID]; ok && !inspectAll && b.State == sb.State {
			full = append(full, *b)
			continue
		}
		g.health.setCall(listed.UID, "SandboxStatus", sb.ID)
		s, err := g.inspector.SandboxStatus(ctx, sb.ID)
		switch {
		case errors.Is(err, cri.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		s.ID, s.Pod, s.Attempt = sb.ID, sb.Pod, sb.Attempt
		full = append(full, s)
	}
	return full, nil
}

func (g *Generator) inspectContainers(ctx context.Context, listed, published cri.Pod, inspectAll bool) ([]cri.Container, error) {
	before := make(map[string]*cri.Container, len(published.Containers))
	for i := range published.Containers {
		before[published.Containers[i].ID] = &published.Containers[i]
	}
	full := make([]cri.Container, 0, len(listed.Containers))
	for _, c := range listed.Containers {
		if b, ok := before[c.ID]; ok && !inspectAll && b.State == c.State {
			full = append(full, *b)
			continue
		}
		g.health.setCall(listed.UID, "ContainerStatus", c.ID)
		s, err := g.inspector.ContainerStatus(ctx, c.ID)
		switch {
		case errors.Is(err, cri.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		s.ID, s.SandboxID, s.PodUID, s.Name, s.Attempt = c.ID, c.SandboxID, c.PodUID, c.Name, c.Attempt
		full = append(full, s)
	}
	return full, nil
}

// carryOver returns next with what the runtime no longer says about it: a pod without a sandbox keeps its name, and
// one that has lost its network keeps its addresses for the record. This is so where no sandbox is ready and none
// has an address; each sandbox then keeps those it had.
func keepLostFields(next, published cri.Pod) cri.Pod {
	if next.Name == "" && next.Namespace == "" {
		next.Name, next.Namespace = published.Name, published.Namespace
	}
	for _, sb := range next.Sandboxes {
		if sb.State == cri.SandboxReady || len(sb.IPs) > 0 {
			return next
		}
	}
	kept := false
	for i, sb := range next.Sandboxes {
		for _, o := range published.Sandboxes {
			if o.ID == sb.ID && len(o.IPs) > 0 {
				if !kept { // the runtime may share the slice: write to a copy
					next.Sandboxes, kept = slices.Clone(next.Sandboxes), true
				}
				next.Sandboxes[i].IPs = o.IPs
			}
		}
	}
	return next
}
