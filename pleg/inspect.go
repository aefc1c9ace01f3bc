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

// job lists one pod, inspects it, or does both, by calls to the runtime.
type job struct {
	rec        *podRecord
	published  cri.Pod // last published state, whose details are reused
	listed     cri.Pod // pod to inspect if relist is false
	relist     bool    // list the pod first
	inspectAll bool    // inspect all containers and sandboxes, not only changed ones
	clock      uint64  // logical time of loop.clock at which the listing started
	started    time.Time
}

// result is the outcome of a job: the listed and inspected state of one pod, or an error.
type result struct {
	job
	pod       cri.Pod // inspected state; if err is set, only the listed state
	listedPod bool    // pod was listed successfully
	ended     time.Time
	err       error
}

// runJob lists and inspects one pod within Options.PodTimeout. It calls release, which frees the slot of the job, at the end.
func (g *Generator) runJob(ctx context.Context, work job, release func()) result {
	defer release()
	// A hung job does not block other pods.
	defer time.AfterFunc(slowAfter, release).Stop()
	ctx, cancel := context.WithTimeout(ctx, g.opts.PodTimeout)
	defer cancel()
	g.health.startAttempt(work.rec.uid, work.started)
	r := result{job: work, pod: work.listed, listedPod: true}
	if work.relist {
		g.health.setCall(work.rec.uid, "ListPod", work.rec.uid)
		r.pod, r.err = g.podLister.ListPod(ctx, work.rec.uid)
		r.pod.UID, r.pod.Time = work.rec.uid, work.started
		r.listedPod = r.err == nil
	}
	if r.err == nil {
		var full cri.Pod
		if full, r.err = g.inspectPod(ctx, r.pod, work.published, work.inspectAll); r.err == nil {
			r.pod = full
		}
	}
	r.ended = time.Now()
	return r
}

// inspectPod returns the listed pod with the details of its containers and sandboxes. It copies the details of unchanged objects
// from published, unless inspectAll is true.
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

// keepLostFields returns the pod with the name and IP addresses of its published state, if the runtime no longer returns them.
func keepLostFields(pod, published cri.Pod) cri.Pod {
	if pod.Name == "" && pod.Namespace == "" {
		pod.Name, pod.Namespace = published.Name, published.Namespace
	}
	for _, sb := range pod.Sandboxes {
		if sb.State == cri.SandboxReady || len(sb.IPs) > 0 {
			return pod
		}
	}
	kept := false
	for i, sb := range pod.Sandboxes {
		for _, o := range published.Sandboxes {
			if o.ID == sb.ID && len(o.IPs) > 0 {
				if !kept { // the runtime may share the slice: write to a copy
					pod.Sandboxes, kept = slices.Clone(pod.Sandboxes), true
				}
				pod.Sandboxes[i].IPs = o.IPs
			}
		}
	}
	return pod
}
