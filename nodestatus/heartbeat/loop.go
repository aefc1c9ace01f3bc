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

// phase is the last observed state of the Node object at the API server.
type phase int

const (
	registering phase = iota // not yet created or adopted
	registered
	absent // removed from the API server, or not yet created by another client
)

const (
	confirmGap    = 10 * time.Second // least time between two requests that check whether the Node exists
	registerReset = 10 * time.Minute // after this time in phase registered, the next deletion counts as the first
)

// confirmBackoff is the back-off between checks whether a deleted Node exists again. The checks are needed while the watch still
// lists the Node.
var confirmBackoff = backoff.Policy{First: confirmGap, Max: 5 * time.Minute} //nolint:gochecknoglobals // never written

// loop is the state of [Reporter].Run, and decides which request is sent next. One request at a time runs on a separate
// goroutine, so that a hanging request does not delay Reporter.Node and its listeners.
type loop struct {
	r        *Reporter
	schedule schedule
	outcomes chan outcome // results of requests
	busy     bool         // a request is in flight

	phase           phase
	serverNode      *corev1.Node // newest version received from the API server; nil: none
	watchedNode     *corev1.Node // newest version in the watch cache; nil: not listed
	phaseStart      time.Time    // start of the current phase
	deletedUID      types.UID    // UID of the deleted Node
	deletions       int          // deletions in a row
	nextConfirm     time.Time    // earliest next request that checks whether the Node exists
	confirmCount    int          // checks since the deletion
	hasReported     bool         // the API server has accepted a status of this process
	announced       nodestatus.Announced
	volumesReported bool // Hooks.VolumesInUse was called
	reportWaiters   []chan error

	cidrs, appliedCIDRs []string
	nextCIDRTry         time.Time
}

func newLoop(reporter *Reporter) loop {
	first := registering
	if reporter.opts.NoRegister {
		first = absent
	}
	return loop{
		phase: first,
		r:     reporter, outcomes: make(chan outcome, 1),
		schedule: schedule{updatePeriod: reporter.opts.UpdateFrequency, reportPeriod: reporter.opts.ReportFrequency, random: reporter.opts.Rand},
	}
}

func (l *loop) startUpdates(now time.Time) {
	l.schedule.start(now)
	callHook(l.r.opts.Event, nodestatus.StartingEvent())
}

// requestInput has the state on which chooseRequest decides which request is sent next.
type requestInput struct {
	phase  phase
	busy   bool // a request is in flight
	update updateKind

	canRegister bool // the registration back-off has passed
	canConfirm  bool // the last check of the Node's existence is confirmGap old
	synced      bool // the watch has delivered a complete list
	present     bool // the watch lists the Node
	recreated   bool // the listed Node has another UID than the deleted one

	changed     bool // the computed status differs from the API server's
	reportDue   bool // an unchanged status must be sent
	becameReady bool // the node is ready, and is not ready at the API server
	fastUpdates bool // the fast updates after the start have not stopped
}

// updateKind says how much an update of the node status does: publish the Node in this process only, or also report changes to
// the API server.
type updateKind int

const (
	publishOnly updateKind = iota // publish the Node locally; report nothing
	readyCheck                    // report only if the node has become ready
	fullUpdate                    // report every change
)

// request is the kind of a request to the API server.
type request int

const (
	requestNone     request = iota
	requestRegister         // create the Node, or reconcile the existing Node
	requestConfirm          // check whether the Node exists
	requestReport           // send the status
)

// chooseRequest returns the request to send now: to register the Node, to check whether it exists, to report its status, or
// none.
func (s requestInput) chooseRequest() request {
	switch {
	case s.busy:
		return requestNone
	case s.phase == registering:
		if s.canRegister {
			return requestRegister
		}
		return requestNone
	case s.phase == absent:
		// A lagging watch still lists the deleted Node, and a Node restored from a backup has its old UID.
		if s.synced && s.present && (s.recreated || s.canConfirm) {
			return requestConfirm
		}
		return requestNone
	case s.synced && !s.present && s.canConfirm:
		return requestConfirm
	case s.update == fullUpdate && (s.changed || s.reportDue), s.update == readyCheck && s.fastUpdates && s.becameReady:
		return requestReport
	}
	return requestNone
}

// nextRequest computes and publishes the Node. It returns a function that sends the due request on another goroutine, or nil.
func (l *loop) nextRequest(now time.Time) func(context.Context) outcome {
	r := l.r
	if r.takeUpdateRequest() {
		l.schedule.requestUpdate()
	}
	l.reportWaiters = append(l.reportWaiters, r.takeReportWaiters()...)
	l.observeWatch()
	if l.phase == absent && r.opts.Reregister && !now.Before(l.schedule.nextRegister) {
		l.enterPhase(registering, now)
	}
	update := l.updateKind(now)
	facts := r.sources.currentFacts(r.wallClock())
	facts.Announced = l.announced
	node, events := l.buildNode(facts)
	l.publishNode(node)

	s := l.buildInput(now, update, node)
	if l.phase == registered && !l.busy && !s.changed {
		l.emitEvents(events) // reports changes made by other clients
	}
	kind := s.chooseRequest()
	if update != publishOnly && !l.busy {
		l.schedule.updateStarted(now)
		l.schedule.updateCompleted(now, update == fullUpdate)
	}
	switch {
	case kind != requestNone:
		l.busy = true
	case update == fullUpdate && !l.busy:
		l.finishUnchangedUpdate()
	}
	return l.buildRequest(kind, s.changed)
}

// updateKind returns which kind of status update is due now. While a caller of [Reporter.Report] waits and no request is
// running, this is a full update.
func (l *loop) updateKind(now time.Time) updateKind {
	due, full := l.schedule.updateDue(now)
	switch {
	case full, len(l.reportWaiters) > 0 && !l.busy:
		return fullUpdate
	case due:
		return readyCheck
	}
	return publishOnly
}

// finishUnchangedUpdate completes a full update that required no request. Waiting calls of [Reporter.Report] then return.
func (l *loop) finishUnchangedUpdate() {
	var err error
	if l.phase != registered {
		err = errNotRegistered
	}
	l.notifyReportWaiters(err)
	if l.serverNode != nil && !l.volumesReported {
		l.volumesReported = true
		callHook(l.r.opts.Hooks.VolumesInUse, l.serverNode.Status.VolumesInUse)
	}
}

func (l *loop) notifyReportWaiters(err error) {
	for _, ch := range l.reportWaiters {
		ch <- err // the channel is buffered
	}
	l.reportWaiters = nil
}

func (l *loop) buildInput(now time.Time, update updateKind, node *corev1.Node) requestInput {
	s := requestInput{
		phase: l.phase, busy: l.busy, update: update,
		canRegister: l.schedule.canRegister(now), canConfirm: !now.Before(l.nextConfirm),
		synced: l.r.store.Synced(), present: l.watchedNode != nil, recreated: l.watchedNode != nil && l.watchedNode.UID != l.deletedUID,
		reportDue: l.schedule.reportDue(now), fastUpdates: !l.schedule.fastUntil.IsZero(),
	}
	if l.serverNode != nil {
		s.changed, s.becameReady = nodestatus.Changed(l.serverNode, node), !isReady(l.serverNode) && isReady(node)
	}
	return s
}

// nextWake returns the time at which Run calls nextRequest again.
func (l *loop) nextWake() time.Time {
	if l.busy {
		return time.Now().Add(l.schedule.updatePeriod) // Run wakes earlier when the request completes
	}
	wake := l.schedule.nextWake(l.phase == registering || l.phase == absent && l.r.opts.Reregister)
	if l.r.opts.PodCIDRs != nil && !slices.Equal(l.cidrs, l.appliedCIDRs) {
		wake = sleep.Earlier(wake, l.nextCIDRTry)
	}
	return wake
}

// observeWatch reads the Node that the watch has received. If the Node is registered and this version is newer than
// serverNode, it replaces serverNode.
func (l *loop) observeWatch() {
	node, present := l.r.store.Get(l.r.name)
	if !present {
		l.watchedNode = nil
		return
	}
	if node == l.watchedNode {
		return
	}
	l.watchedNode = node
	if l.phase == registered && isNewer(node, l.serverNode) {
		l.storeNode(node)
	}
}

// storeNode stores a Node from the API server.
func (l *loop) storeNode(node *corev1.Node) {
	l.serverNode = node
	if len(node.Spec.PodCIDRs) > 0 {
		l.cidrs = node.Spec.PodCIDRs
	}
	own := l.r.sources.machineInfo().BootID
	// Another machine reports with this node name.
	if theirs := node.Status.NodeInfo.BootID; l.hasReported && own != "" && theirs != "" && theirs != own {
		l.r.duplicates.reportDuplicate(time.Now(), "the boot ID of its machine is "+quoteShort(theirs))
	}
}

// isNewer reports whether node is a newer version of the Node than current, or cannot be compared with it.
func isNewer(node, current *corev1.Node) bool {
	if current == nil || current.UID != node.UID {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, current.ResourceVersion)
	return err != nil || order > 0
}

// buildNode returns the Node to report, with its status computed from facts, and the events to record.
func (l *loop) buildNode(facts nodestatus.Facts) (*corev1.Node, []nodestatus.Event) {
	if l.serverNode == nil {
		return nodestatus.Initial(facts)
	}
	return nodestatus.Build(l.serverNode, facts)
}

// emitEvents passes events to Options.Event. It marks them as announced, so that Build does not return them again.
func (l *loop) emitEvents(events []nodestatus.Event) {
	l.announced = l.announced.WithEvents(events)
	for _, e := range events {
		callHook(l.r.opts.Event, e)
	}
}

// publishNode makes node the result of [Reporter.Node]. If the Node has changed, it calls the functions registered with
// [Reporter.Notify].
func (l *loop) publishNode(node *corev1.Node) {
	previous := l.r.node.Load()
	l.r.node.Store(node)
	if !isSameNode(previous, node) {
		l.r.nodeChanged.Call()
	}
	if node.UID != "" {
		l.r.registeredOnce.Do(func() { close(l.r.registered) })
	}
}

// isSameNode reports whether two Node objects are equal, ignoring resource versions and heartbeat times.
func isSameNode(a, b *corev1.Node) bool {
	return a.UID == b.UID && !nodestatus.Changed(a, b) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// enterPhase sets the phase to p.
func (l *loop) enterPhase(p phase, now time.Time) {
	if l.phase == p {
		return
	}
	if l.phase == registered && now.Sub(l.phaseStart) > registerReset {
		// The Node was registered for long: its deletions are no longer consecutive.
		l.deletions = 0
	}
	l.phase, l.phaseStart = p, now
	l.r.nodeAbsent.Store(p == absent)
}

// duePodCIDRs returns the pod CIDRs of the Node, and whether to pass them to Options.PodCIDRs now.
func (l *loop) duePodCIDRs(now time.Time) ([]string, bool) {
	if slices.Equal(l.cidrs, l.appliedCIDRs) || now.Before(l.nextCIDRTry) {
		return nil, false
	}
	l.nextCIDRTry = now.Add(l.schedule.updatePeriod) // if the call fails
	return l.cidrs, true
}

// isReady reports whether the condition Ready of node is True. If there are two such conditions, the last is used.
func isReady(node *corev1.Node) bool {
	ready := false
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c.Status == corev1.ConditionTrue
		}
	}
	return ready
}
