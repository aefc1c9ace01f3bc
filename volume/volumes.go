// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// Volumes manages the volumes of all pods of a node. Create it with [New], and call [Volumes.Run], which sets up and tears down
// the volumes.
type Volumes struct {
	opts     Options
	resolver resolver
	events   eventRecorder
	guard    runonce.Guard
	wake     chan struct{} // wakes Run; capacity 1
	created  time.Time
	ready    listener.List // functions added by Notify

	mu      sync.Mutex // guards the fields below, except calls
	pods    map[string]*podState
	devices deviceTable
	damaged map[string]error       // by UID: the error of reading the record of the pod
	refused map[string]*corev1.Pod // by UID: pods with a claim that Prepare refused; a changed object or a released pod may make it usable
	plan    plan.State

	calls nowait.Calls // calls into file systems that may hang
}

// New returns a Volumes with the volumes that a previous agent process has recorded below opts.Root. It only reads, and starts
// no goroutine. The error names the invalid field of opts, or the directory that cannot be read.
func New(opts Options) (*Volumes, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	records, damaged, err := record.ReadAll(opts.Root)
	if err != nil {
		return nil, fmt.Errorf("volume: read records: %w", err)
	}
	v := &Volumes{
		opts: opts, wake: make(chan struct{}, 1), created: time.Now(), pods: map[string]*podState{}, damaged: damaged,
		refused: map[string]*corev1.Pod{},
		plan:    plan.State{Parallel: opts.Parallel, Slow: opts.SlowAfter},
	}
	v.devices = deviceTable{plan: &v.plan, byName: map[string]*device{}}
	v.resolver, v.events = resolver{opts: &v.opts}, eventRecorder{opts: &v.opts}
	slices.SortFunc(records, func(a, b record.Pod) int { return strings.Compare(a.UID, b.UID) })
	for _, r := range records {
		p := v.newPod(r.UID, r.Name)
		p.recorded = r
		for _, known := range r.Volumes {
			v.addVolume(p, known).markUncertain()
		}
		v.pods[r.UID] = p
	}
	if err := v.findVolumes(); err != nil {
		return nil, fmt.Errorf("volume: find volumes without record: %w", err)
	}
	return v, nil
}

// Notify registers fn, which is called with the UIDs of pods whose failed Prepare call may now succeed. Either all volumes of
// the pod are set up now, or a claim that was refused may be usable. fn is called without a lock, from goroutines of Run and
// Release.
func (v *Volumes) Notify(fn func(uids ...string)) { v.ready.Add(fn) }

// Pods returns the sorted UIDs of all pods with volumes, including pods whose record cannot be read. At its start, the agent
// calls Release for each UID that no source lists.
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

// requireRun makes v report an error if Run is not called within a few seconds.
func (v *Volumes) requireRun() { v.guard.Require("volume.Volumes", v.opts.Logger, v.opts.Hooks.Error) }

// signal wakes Run, which then starts the steps that are due.
func (v *Volumes) signal() {
	sleep.Wake(v.wake)
}
