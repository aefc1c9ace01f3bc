// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Volumes are the volumes of the pods of a node. Make one with [New].
type Volumes struct {
	opts  Options
	guard runonce.Guard
	wake  chan struct{} // something may be due
	ready listener.List

	mu       sync.Mutex // guards what follows
	pods     map[string]*podState
	devices  map[string]*device     // by name
	damaged  map[string]error       // by UID: why the record of the pod cannot be read
	claims   map[string]*corev1.Pod // by UID: pods that wait for a claim which they cannot use so far
	state    plan.State
	reserved []reservation // of pods whose records are about to be written

	calls nowait.Calls // about volumes that may not answer
}

// podState is what is known of the volumes of a pod.
type podState struct {
	uid, dir string
	name     string      // namespace/name
	spec     *corev1.Pod // nil: an earlier agent had it, and nobody has said anything about it so far
	volumes  []*entry
	changed  chan struct{} // closed when a step has ended, and replaced
	gaveUp   bool          // a Prepare of it, since its volumes were last set up

	recording sync.Mutex // held while the record is written or removed
	recorded  record
}

// entry is a volume of a pod.
type entry struct {
	plan.Volume
	recorded recordedVolume
	device   *device  // that it shares; nil: none
	claimed  *claimed // as it was seen last; nil: it has no claim, or that was not seen
	mount    Mount    // once it was set up
	err      error    // of the step that has failed last; nil after one that succeeded

	cancel context.CancelFunc // ends the step under way; nil: there is none
}

// New returns the volumes that earlier agents have set up below Options.Root, which are left alone for the time being. It starts
// nothing. An error says which field of the options is invalid, or that the root cannot be read.
func New(o Options) (*Volumes, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	records, damaged, err := readRecords(o.Root)
	if err != nil {
		return nil, fmt.Errorf("volume: read records: %w", err)
	}
	v := &Volumes{
		opts: o, wake: make(chan struct{}, 1), pods: map[string]*podState{}, devices: map[string]*device{}, damaged: damaged,
		claims: map[string]*corev1.Pod{},
		state:  plan.State{Parallel: o.Parallel, Slow: o.Slow},
	}
	slices.SortFunc(records, func(a, b record) int { return strings.Compare(a.UID, b.UID) })
	for _, r := range records {
		p := v.newPod(r.UID, r.Pod)
		p.recorded = r
		for _, known := range r.Volumes {
			e := v.add(p, known)
			e.Phase, e.Recovered = plan.Uncertain, true
			if e.device != nil {
				e.device.Phase, e.device.Recovered = plan.Uncertain, true
			}
		}
		v.pods[r.UID] = p
	}
	return v, nil
}

func (v *Volumes) newPod(uid, name string) *podState {
	return &podState{uid: uid, name: name, dir: filepath.Join(v.opts.Root, uid), changed: make(chan struct{})}
}

// add adds a volume to a pod.
func (v *Volumes) add(p *podState, r recordedVolume) *entry {
	e := &entry{Volume: plan.Volume{Pod: p.uid, Name: r.Name}, recorded: r}
	if r.Device != nil {
		e.device = v.hold(p, r)
		e.Device = &e.device.Device
	}
	p.volumes = append(p.volumes, e)
	v.state.Volumes = append(v.state.Volumes, &e.Volume)
	return e
}

// find returns a volume of a pod by its first name, or nil.
func (p *podState) find(name string) *entry {
	for _, e := range p.volumes {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// names returns all names of a volume in its pod.
func (e *entry) names() []string { return append([]string{e.Name}, e.recorded.Also...) }

// usedBy reports whether one of its names is among those that containers use.
func (e *entry) usedBy(names map[string]bool) bool {
	return slices.ContainsFunc(e.names(), func(name string) bool { return names[name] })
}

// source returns the volume of the pod, by the first of its names that it still has; nil: it has none.
func (e *entry) source(pod *corev1.Pod) *corev1.Volume {
	for _, name := range e.names() {
		if vol := podvolume.Find(pod, name); vol != nil {
			return vol
		}
	}
	return nil
}

// notify wakes those who wait for a volume of the pod.
func (p *podState) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
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

// poke lets Run look at what is due.
func (v *Volumes) poke() {
	select {
	case v.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// left is what a pod waits for, as errors.
func (p *podState) left(want plan.Phase, now time.Time) (errs []error) {
	for _, e := range p.volumes {
		if err := e.left(p, want, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// left is why a pod waits for a volume, or nil.
func (e *entry) left(p *podState, want plan.Phase, now time.Time) error {
	d := e.device
	switch {
	case want == plan.Ready && e.Desired != plan.Mounted:
		return nil
	case want == plan.Absent && e.Phase == plan.Absent && d != nil && d.last(p):
		return named(plan.Unstage, e.Name, d.wait(now))
	case e.Phase == want:
		return nil
	case e.Step != plan.None:
		return named(e.Step, e.Name, underWay(&e.Progress, e.err, now))
	case want == plan.Ready && d != nil && d.Phase != plan.Ready && (e.err == nil || d.Step != plan.None || d.err != nil):
		return named(plan.Stage, e.Name, d.wait(now))
	}
	step, err := plan.SetUp, e.err
	if want == plan.Absent {
		step = plan.TearDown
	}
	if err == nil {
		err = errors.New("it has not begun")
	}
	return named(step, e.Name, err)
}

// named returns an error that names a step and a volume.
func named(s plan.Step, name string, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return &Error{Step: publicStep(s), Volume: name, Err: err}
}

// wait returns when all volumes of a pod that are to be in a phase are, or with why they are not when ctx ends or too much time
// has passed.
func (v *Volumes) wait(ctx context.Context, p *podState, want plan.Phase) error {
	deadline := time.NewTimer(v.opts.Wait)
	defer deadline.Stop()
	for {
		left, changed := v.missing(p, want)
		if len(left) == 0 {
			return nil
		}
		var end error
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			end = ctx.Err()
		case <-deadline.C:
			end = fmt.Errorf("timed out after %v", v.opts.Wait)
		}
		if left, _ = v.missing(p, want); len(left) == 0 {
			return nil
		}
		return fmt.Errorf("%w: %w", end, join(left))
	}
}

// missing returns what a pod waits for, with why nobody works at it, and what is closed when that changes.
func (v *Volumes) missing(p *podState, want plan.Phase) (left []error, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	left = p.left(want, time.Now())
	if len(left) > 0 && v.guard.Err() != nil {
		left = append([]error{runonce.NotRun("volume.Volumes")}, left...)
	}
	return left, p.changed
}

// isNotDir reports whether a path leads through something that is no directory.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
