// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// Volumes are the volumes of the pods of a node. Make one with [New].
type Volumes struct {
	opts     Options
	resolver resolver
	events   eventRecorder
	guard    runonce.Guard
	wake     chan struct{} // something may be due
	ready    listener.List

	mu      sync.Mutex // guards what follows
	pods    map[string]*podState
	devices deviceTable
	damaged map[string]error       // by UID: why the record of the pod cannot be read
	refused map[string]*corev1.Pod // by UID: pods that wait for a claim which they cannot use so far
	plan    plan.State

	calls nowait.Calls // about volumes that may not answer
}

// New returns the volumes that earlier agents have set up below Options.Root, which are left alone for the time being. It starts
// nothing. An error says which field of the options is invalid, or that the root cannot be read.
func New(o Options) (*Volumes, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	records, damaged, err := record.ReadAll(o.Root)
	if err != nil {
		return nil, fmt.Errorf("volume: read records: %w", err)
	}
	v := &Volumes{
		opts: o, wake: make(chan struct{}, 1), pods: map[string]*podState{}, damaged: damaged,
		refused: map[string]*corev1.Pod{},
		plan:    plan.State{Parallel: o.Parallel, Slow: o.Slow},
	}
	v.devices = deviceTable{plan: &v.plan, byName: map[string]*device{}}
	v.resolver, v.events = resolver{opts: &v.opts}, eventRecorder{opts: &v.opts}
	slices.SortFunc(records, func(a, b record.Pod) int { return strings.Compare(a.UID, b.UID) })
	for _, r := range records {
		p := v.newPod(r.UID, r.Name)
		p.recorded = r
		for _, known := range r.Volumes {
			e := v.add(p, known)
			e.plan.Phase, e.plan.Recovered = plan.Uncertain, true
			if e.device != nil {
				e.device.plan.Phase, e.device.plan.Recovered = plan.Uncertain, true
			}
		}
		v.pods[r.UID] = p
	}
	return v, nil
}

// Notify has fn called with the UID of a pod whose volumes are set up after a Prepare has given up: the next one returns at once. It
// is called, too, with those of pods that were refused a volume which they may be able to have now, as an object has changed or another
// pod was released. It is called with no lock held, from the goroutines of Run and of Release.
func (v *Volumes) Notify(fn func(uids ...string)) { v.ready.Add(fn) }

// Pods returns the UIDs of the pods of which something is known, those with a damaged record too: whoever starts releases
// those that nobody wants any more.
func (v *Volumes) Pods() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	uids := make([]string, 0, len(v.pods)+len(v.damaged))
	for uid := range v.pods {
		uids = append(uids, uid)
	}
	for uid := range v.damaged {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// needRun starts the wait after which a missing Run is reported.
func (v *Volumes) needRun() { v.guard.Require("volume.Volumes", v.opts.Logger, v.opts.Hooks.Error) }

// signal wakes Run, which starts the steps that are due.
func (v *Volumes) signal() {
	sleep.Wake(v.wake)
}
