// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/resize"
)

// Resizer changes the resources of the containers of one pod while they run, and knows what they have. What the runtime was
// told is in the pod's record; an agent that has none reads the containers anew, and at worst tells the runtime once more
// what it knows.
type Resizer struct {
	*Reporter
	record *poddir.Recorder

	// Of the goroutine of the worker alone.
	now        resize.Decision // as of the last look
	of         *corev1.Pod     // that was looked at
	key        string          // of the resources that the pod is to have
	keyOf      *corev1.Pod     // that it was made from
	generation int64           // of the spec that first had them

	mu    sync.Mutex              // guards all below
	told  map[string]cgroups.Size // to the runtime, by container ID
	sized string                  // key of the resources that the pod's cgroup is for; empty: not known
	err   error                   // of the last attempt
}

// Recall takes up what an earlier agent knew.
func (z *Resizer) Recall(known poddir.Record) {
	z.sized = known.Sized
	for id, note := range known.Sizes {
		if size, ok := resize.ParseSize(note); ok {
			z.tell(id, size)
		}
	}
}

// tell takes note of what the runtime was told.
func (z *Resizer) tell(id string, size cgroups.Size) {
	if z.told == nil {
		z.told = map[string]cgroups.Size{}
	}
	z.told[id] = size
}

// Put puts down in a record what the runtime was told.
func (z *Resizer) Put(now *poddir.Record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now.Sized, now.Sizes = z.sized, make(map[string]string, len(z.told))
	for id, size := range z.told {
		now.Sizes[id] = resize.FormatSize(size)
	}
}

// Decide decides what is to become of the resources of the pod, and keeps that for the actions and the status.
func (z *Resizer) Decide(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if z.of != pod {
		z.now, z.of = resize.Decision{Pod: pod}, pod
	}
	if pod == nil || deleted || pod.DeletionTimestamp != nil {
		return
	}
	z.now = resize.Decide(resize.State{
		Pod: pod, Observed: observed, Spec: z.node.Spec, Told: z.toldSizes(observed),
		Sized: z.sizedPod(), Fixed: z.node.updater == nil,
	})
	if admit := z.node.AdmitResize; admit != nil && z.now.Resizes() {
		if err := admit(pod); err != nil {
			z.now = refused(&z.now, err)
		}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.now.Pod != z.keyOf {
		z.keyOf = z.now.Pod
		if key := resourceKey(z.keyOf); key != z.key {
			z.key, z.generation, z.err = key, pod.Generation, nil
		}
	}
	if z.sized == "" && !z.now.Changed {
		z.sized = z.key
	}
	if len(z.now.Containers) == 0 && (z.sized == z.key || z.node.Cgroups == nil) {
		z.err = nil
	}
	if z.now.Generation = z.generation; z.err != nil {
		z.now.Error = z.err.Error()
	}
}

// refused returns the decision for a resize that the node has no room for.
func refused(d *resize.Decision, err error) resize.Decision {
	why, ok := errors.AsType[*podstatus.Rejection](err)
	switch {
	case !ok:
		return d.Deferred(err.Error())
	case why.Reason == corev1.PodReasonInfeasible:
		return d.Infeasible(why.Message)
	default:
		return d.Deferred(why.Message)
	}
}

// Decision returns what was decided last about the resources of a pod, as of the last look at it.
func (z *Resizer) Decision(pod *corev1.Pod, observed cri.Pod, deleted bool) resize.Decision {
	if z.of != pod {
		z.Decide(pod, observed, deleted)
	}
	return z.now
}

// toldSizes returns what the runtime was told of the containers that there are, and forgets the others.
func (z *Resizer) toldSizes(observed cri.Pod) map[string]cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.DeleteFunc(z.told, func(id string, _ cgroups.Size) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	})
	return maps.Clone(z.told)
}

// sizedPod returns what the pod's cgroup is for, where the pod has resources as a whole, or nil.
func (z *Resizer) sizedPod() *cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	whole, _, _ := strings.Cut(z.sized, ";")
	if size, ok := resize.ParseSize(whole); ok {
		return &size
	}
	return nil
}

// MayLackLimits reports whether the cgroup of a pod may have limits for other resources than the pod now has.
func (z *Resizer) MayLackLimits(observed cri.Pod) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.node.Cgroups != nil && z.node.updater != nil && z.now.Reason == "" && z.sized != z.key && podview.Running(observed)
}

// resize gives the pod and its running containers the resources that they are to have.
func (z *Resizer) resize(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if len(a.Resize) == 0 && !a.ResizePod {
		return nil
	}
	r := &resizeCall{Resizer: z, pod: pod, sandboxID: a.SandboxID, containers: a.Resize}
	err := r.run(ctx)
	if err == nil {
		err = r.verify()
	}
	z.mu.Lock()
	if z.err = err; err == nil {
		z.sized = resourceKey(pod)
	}
	z.mu.Unlock()
	z.Note(z.record, z.Put)
	return err
}

// resourceKey returns what tells the resources of a pod from others.
func resourceKey(pod *corev1.Pod) string {
	var key strings.Builder
	if pod.Spec.Resources != nil {
		key.WriteString(resize.FormatSize(resize.SizeOfPod(pod)))
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		key.WriteString(";" + c.Name + " " + resize.FormatSize(resize.SizeOf(&pod.Spec, c)))
	}
	return key.String()
}

// created takes note of what a container was created with. What the runtime then says of it may differ, by a plugin or by
// how it rounds, and is no reason to resize the container, let alone to start it anew.
func (z *Resizer) created(id string, size cgroups.Size) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.tell(id, size)
}
