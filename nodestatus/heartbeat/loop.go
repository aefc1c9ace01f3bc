// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// phase is what is known of the Node at the API server.
type phase int

const (
	registering phase = iota // not known to be there
	registered
	deleted // known to be there no more
)

const (
	confirmGap    = 10 * time.Second // the least time between two questions whether the Node is there
	registerReset = 10 * time.Minute // a Node that was there as long is deleted for the first time again
)

// confirmBackoff is between questions about a Node that is deleted, where the watch has missed that.
var confirmBackoff = backoff.Policy{First: confirmGap, Max: 5 * time.Minute} //nolint:gochecknoglobals // never written

// loop is what Run of a [Reporter] remembers. Requests run on a goroutine of their own, one at a time, so that one that hangs
// delays neither Node nor who is told of it.
type loop struct {
	r    *Reporter
	pace pace
	done chan outcome
	busy bool

	phase     phase
	known     *corev1.Node // the newest that the API server has sent; nil: none
	seen      *corev1.Node // the newest of the store
	since     time.Time    // when the phase began
	lost      types.UID    // of the Node that is deleted
	deletions int          // in a row
	confirm   time.Time    // when it may be asked again whether the Node is there
	confirms  int          // how often that was asked since it is deleted
	complete  bool         // a status of ours was sent
	announced nodestatus.Announced
	told      bool // Hooks.VolumesInUse was called
	waiting   []chan error

	cidrs, appliedCIDRs []string
	nextCIDRs           time.Time
}

func newLoop(r *Reporter) loop {
	return loop{
		r: r, done: make(chan outcome, 1),
		pace: pace{period: r.opts.UpdateFrequency, report: r.opts.ReportFrequency, random: r.opts.Rand},
	}
}

func (l *loop) begin(now time.Time) {
	l.pace.begin(now)
	call(l.r.opts.Event, nodestatus.StartingEvent())
}

// situation is what it depends on whether a request is to be sent.
type situation struct {
	phase phase
	busy  bool // with a request
	look  lookKind

	mayRegister bool // its back-off is over
	mayConfirm  bool // the last time was long enough ago
	synced      bool // the watch has a complete list
	present     bool // the Node is in it
	other       bool // with another UID than the one that is deleted

	changed   bool // the status is another one than the API server has
	expired   bool // it was not sent for long
	turnReady bool // it is ready, and was not at the API server
	fast      bool // it never was since the start
}

// lookKind is why the node is looked at.
type lookKind int

const (
	glance lookKind = iota // something may have changed at the API server
	quick                  // has the runtime become ready?
	whole                  // it is time, or something has changed here
)

// request is what to ask of the API server.
type request int

const (
	nothing  request = iota
	register         // create the Node, or reconcile the one that is there
	confirm          // ask whether it is there
	report           // send the status
)

// decide is which request follows from a situation.
func (s situation) decide() request {
	switch {
	case s.busy:
		return nothing
	case s.phase == registering:
		if s.mayRegister {
			return register
		}
		return nothing
	case s.phase == deleted:
		// A watch that is behind still shows what is deleted; what was brought back from a backup has its old UID.
		if s.synced && s.present && (s.other || s.mayConfirm) {
			return confirm
		}
		return nothing
	case s.synced && !s.present && s.mayConfirm:
		return confirm
	case s.look == whole && (s.changed || s.expired), s.look == quick && s.fast && s.turnReady:
		return report
	}
	return nothing
}

// step looks at the node, and returns the request that is to be sent, or nil.
func (l *loop) step(now time.Time) func(context.Context) outcome {
	r := l.r
	if r.takeAsked() {
		l.pace.ask()
	}
	l.waiting = append(l.waiting, r.takeWaits()...)
	l.observe()
	if l.phase == deleted && r.opts.Reregister && !now.Before(l.pace.register) {
		l.enter(registering, now)
	}
	look := l.lookKind(now)
	facts := r.gather.current(r.wall())
	facts.Announced = l.announced
	node, events := l.build(facts)
	l.publish(node)

	s := l.situation(now, look, node)
	if l.phase == registered && !l.busy && !s.changed {
		l.emit(events) // about what others have changed
	}
	what := s.decide()
	if look != glance && !l.busy {
		l.pace.looking(now)
		l.pace.looked(now, look == whole)
	}
	switch {
	case what != nothing:
		l.busy = true
	case look == whole && !l.busy:
		l.idle()
	}
	return l.start(what, s.changed)
}

// lookKind is why this step looks at the node.
func (l *loop) lookKind(now time.Time) lookKind {
	due, all := l.pace.due(now)
	switch {
	case all, len(l.waiting) > 0 && !l.busy:
		return whole
	case due:
		return quick
	}
	return glance
}

// idle ends a whole look that found nothing to send.
func (l *loop) idle() {
	var err error
	if l.phase != registered {
		err = errNotRegistered
	}
	l.answer(err)
	if l.known != nil && !l.told {
		l.told = true
		call(l.r.opts.Hooks.VolumesInUse, l.known.Status.VolumesInUse)
	}
}

func (l *loop) answer(err error) {
	for _, ch := range l.waiting {
		ch <- err // which has room
	}
	l.waiting = nil
}

func (l *loop) situation(now time.Time, look lookKind, node *corev1.Node) situation {
	s := situation{
		phase: l.phase, busy: l.busy, look: look,
		mayRegister: l.pace.mayRegister(now), mayConfirm: !now.Before(l.confirm),
		synced: l.r.store.Synced(), present: l.seen != nil, other: l.seen != nil && l.seen.UID != l.lost,
		expired: l.pace.expired(now), fast: !l.pace.fastUntil.IsZero(),
	}
	if l.known != nil {
		s.changed, s.turnReady = nodestatus.Changed(l.known, node), !isReady(l.known) && isReady(node)
	}
	return s
}

// next returns when the next step is due.
func (l *loop) next() time.Time {
	if l.busy {
		return time.Now().Add(l.pace.period) // the end of the request wakes the loop
	}
	at := l.pace.next(l.phase == registering || l.phase == deleted && l.r.opts.Reregister)
	if l.r.opts.PodCIDRs != nil && !slices.Equal(l.cidrs, l.appliedCIDRs) {
		at = sleep.Earlier(at, l.nextCIDRs)
	}
	return at
}

// observe takes what the watch has brought.
func (l *loop) observe() {
	node, present := l.r.store.Get(l.r.name)
	if !present {
		l.seen = nil
		return
	}
	if node == l.seen {
		return
	}
	l.seen = node
	if l.phase == registered && newer(node, l.known) {
		l.know(node)
	}
}

// know takes a Node that the API server has sent.
func (l *loop) know(node *corev1.Node) {
	l.known = node
	if len(node.Spec.PodCIDRs) > 0 {
		l.cidrs = node.Spec.PodCIDRs
	}
	own := l.r.gather.machine().BootID
	if theirs := node.Status.NodeInfo.BootID; l.complete && own != "" && theirs != "" && theirs != own {
		l.r.same.found(time.Now(), "the boot ID of its machine is "+quoted(theirs))
	}
}

// newer reports whether node is not older than known. Nobody but the API server can tell versions apart that are no numbers: then
// the one that came last counts.
func newer(node, known *corev1.Node) bool {
	if known == nil || known.UID != node.UID {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, known.ResourceVersion)
	return err != nil || order > 0
}

// build makes the Node from what is known.
func (l *loop) build(facts nodestatus.Facts) (*corev1.Node, []nodestatus.Event) {
	if l.known == nil {
		return nodestatus.Initial(facts)
	}
	return nodestatus.Build(l.known, facts)
}

// emit tells what is true now.
func (l *loop) emit(events []nodestatus.Event) {
	l.announced = l.announced.WithEvents(events)
	for _, e := range events {
		call(l.r.opts.Event, e)
	}
}

// publish makes a Node the one that others see, and tells them where it has changed.
func (l *loop) publish(node *corev1.Node) {
	was := l.r.node.Load()
	l.r.node.Store(node)
	if !sameObject(was, node) {
		l.r.changed.Call()
	}
	if node.UID != "" {
		l.r.known.Do(func() { close(l.r.registered) })
	}
}

// sameObject reports whether two Nodes differ in nothing but versions and times.
func sameObject(a, b *corev1.Node) bool {
	return a.UID == b.UID && !nodestatus.Changed(a, b) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// enter begins a phase.
func (l *loop) enter(p phase, now time.Time) {
	if l.phase == p {
		return
	}
	if l.phase == registered && now.Sub(l.since) > registerReset {
		l.deletions = 0
	}
	l.phase, l.since = p, now
	l.r.gone.Store(p == deleted)
}

// podCIDRs returns the addresses of pods, and whether they are to be applied.
func (l *loop) podCIDRs(now time.Time) ([]string, bool) {
	if slices.Equal(l.cidrs, l.appliedCIDRs) || now.Before(l.nextCIDRs) {
		return nil, false
	}
	l.nextCIDRs = now.Add(l.pace.period)
	return l.cidrs, true
}

// isReady reports whether a Node has the condition Ready, which counts as the last of that type where there are several.
func isReady(node *corev1.Node) bool {
	ready := false
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c.Status == corev1.ConditionTrue
		}
	}
	return ready
}
