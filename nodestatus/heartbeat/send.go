// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// errNotRegistered is the error of Reporter.Report while the Node does not exist at the API server.
var errNotRegistered = errors.New("the API server does not have the Node")

// outcome is the result of a request of the Reporter to the API server.
type outcome struct {
	request  request
	err      error
	node     *corev1.Node       // Node in the response; nil: none
	events   []nodestatus.Event // to record, because the API server has accepted them
	accepted bool               // the API server accepted a status of this process
	changed  bool               // the accepted status differs from the previous one
	notFound bool               // the API server does not have the Node
	attempts int
}

// buildRequest returns a function that sends a request of this kind, or nil for requestNone. It runs on another goroutine.
func (l *loop) buildRequest(kind request, changed bool) func(context.Context) outcome {
	// The function shares no mutable state with the loop.
	r, previous, announced := l.r, l.serverNode, l.announced
	switch kind {
	case requestRegister:
		return func(ctx context.Context) outcome { return r.registerNode(ctx, announced) }
	case requestConfirm:
		return r.confirmNode
	case requestReport:
		l.schedule.reportStarted(changed)
		return func(ctx context.Context) outcome { return r.reportStatus(ctx, previous, announced) }
	default:
		return nil
	}
}

// currentFacts returns the last results of all sources. The facts include announced, which says which events were already
// recorded.
func (r *Reporter) currentFacts(announced nodestatus.Announced) nodestatus.Facts {
	f := r.sources.currentFacts(r.wallClock())
	f.Announced = announced
	return f
}

// registerNode creates the Node at the API server. If the Node exists already, it changes the fields that
// [nodestatus.Reconcile] sets.
func (r *Reporter) registerNode(ctx context.Context, announced nodestatus.Announced) outcome {
	initial, events := nodestatus.Initial(r.currentFacts(announced))
	node, err := r.nodes.Create(ctx, initial)
	if err == nil {
		return outcome{request: requestRegister, node: node, events: events, accepted: true, changed: true}
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return outcome{request: requestRegister, err: err}
	}
	existing, getErr := r.nodes.Get(ctx, r.name)
	if getErr != nil {
		if apierrors.IsForbidden(err) {
			getErr = fmt.Errorf("%w; %w", err, getErr) // the error of the create request explains why
		}
		return outcome{request: requestRegister, err: getErr}
	}
	node, changed := nodestatus.Reconcile(existing, initial)
	if r.opts.ResetExtendedResources {
		reset, found := nodestatus.ZeroExtendedResources(node)
		node, changed = reset, changed || found
	}
	if !changed {
		return outcome{request: requestRegister, node: existing}
	}
	node, err = r.patchNode(ctx, existing, node)
	return outcome{request: requestRegister, node: node, err: err}
}

// patchNode patches the subresource status of the Node with the difference between old and node. It returns the Node from
// the response.
func (r *Reporter) patchNode(ctx context.Context, old, node *corev1.Node) (*corev1.Node, error) {
	patch, err := nodestatus.Patch(old, node)
	if err != nil {
		return nil, err
	}
	node, err = r.nodes.Patch(ctx, r.name, types.StrategicMergePatchType, patch, "status")
	if err != nil {
		return nil, err
	}
	return node, nil
}

// confirmNode gets the Node to check whether it exists.
func (r *Reporter) confirmNode(ctx context.Context) outcome {
	node, err := r.nodes.Get(ctx, r.name)
	if err != nil {
		return outcome{request: requestConfirm, err: err, notFound: apierrors.IsNotFound(err)}
	}
	return outcome{request: requestConfirm, node: node}
}

// reportStatus sends the node status, in at most maxHeartbeatTries attempts.
func (r *Reporter) reportStatus(ctx context.Context, previous *corev1.Node, announced nodestatus.Announced) outcome {
	out := outcome{request: requestReport}
	for out.attempts = 1; ; out.attempts++ {
		out.err = r.tryReport(ctx, previous, announced, &out)
		if out.notFound = apierrors.IsNotFound(out.err); out.err == nil || out.notFound {
			return out
		}
		if ctx.Err() != nil || out.attempts == maxHeartbeatTries {
			return out
		}
		callHook(r.opts.Hooks.Error, out.err)
		if out.attempts > 1 || !isServerError(out.err) {
			r.client.CloseConnections()
		}
		previous = nil // the next attempt gets the Node first
	}
}

// tryReport computes and sends the node status once, and stores the result in out. Without a previous Node, it gets the Node
// first.
func (r *Reporter) tryReport(ctx context.Context, previous *corev1.Node, announced nodestatus.Announced, out *outcome) error {
	var err error
	if previous == nil {
		if previous, err = r.nodes.Get(ctx, r.name); err != nil {
			return err
		}
	}
	built, events := nodestatus.Build(previous, r.currentFacts(announced))
	node, err := r.patchNode(ctx, previous, built)
	if err != nil {
		return err
	}
	out.node, out.events, out.accepted, out.changed = node, events, true, nodestatus.Changed(previous, built)
	return nil
}

// finishRequest applies out, the outcome of a request: it stores the received Node, calls the hooks and sets the time of the
// next request.
func (l *loop) finishRequest(out outcome, now time.Time) {
	l.busy = false
	if out.err != nil && !out.notFound {
		callHook(l.r.opts.Hooks.Error, out.err)
	}
	if out.node != nil && (l.serverNode == nil || isNewer(out.node, l.serverNode)) {
		l.storeNode(out.node)
	}
	if out.accepted {
		l.recordAccepted(out, now)
	}
	switch {
	case out.notFound:
		l.handleDeleted(now)
	case out.request == requestRegister:
		l.finishRegister(out, now)
	case out.request == requestConfirm:
		l.finishConfirm(out, now)
	case out.err != nil:
		l.r.opts.Logger.Warn("report status of node", "node", l.r.name, "attempts", out.attempts, "error", cert.ExplainError(l.r.config, out.err))
	}
	if out.request == requestReport {
		if out.notFound {
			out.err = errNotRegistered
		}
		l.schedule.updateCompleted(now, true)
		l.schedule.stopFastUpdates() // otherwise the fast updates would retry ten times a second
		l.notifyReportWaiters(out.err)
	}
}

// recordAccepted records that the API server has accepted a status, and calls the hooks.
func (l *loop) recordAccepted(out outcome, now time.Time) {
	hooks := &l.r.opts.Hooks
	if out.request == requestRegister {
		l.schedule.reportStarted(true)
	}
	l.schedule.reportAccepted(now)
	l.hasReported = true
	if isReady(out.node) {
		l.schedule.stopFastUpdates()
	}
	l.emitEvents(out.events)
	callHook(hooks.Reported, out.node)
	l.volumesReported = true
	callHook(hooks.VolumesInUse, out.node.Status.VolumesInUse)
}

func (l *loop) finishRegister(out outcome, now time.Time) {
	l.schedule.registerAttempted(now, out.err)
	if out.err != nil {
		l.r.opts.Logger.Warn("register node", "node", l.r.name, "attempts", l.schedule.registerFailures, "error", cert.ExplainError(l.r.config, out.err))
		return
	}
	l.r.opts.Logger.Info("node registered", "node", l.r.name, "uid", out.node.UID, "created", out.accepted)
	l.startReporting(now)
}

// startReporting sets the phase to registered, because the Node exists at the API server. From then on, Run reports the
// status of the Node.
func (l *loop) startReporting(now time.Time) {
	l.enterPhase(registered, now)
	l.nextConfirm = now.Add(confirmGap) // gives the watch time to list the Node
	node, _ := l.buildNode(l.r.currentFacts(l.announced))
	l.publishNode(node)
	l.schedule.nextUpdate = now // sends changes made during the registration
	callHook(l.r.opts.Hooks.Registered, l.serverNode)
	l.r.nodeAppeared.Call()
}

func (l *loop) finishConfirm(out outcome, now time.Time) {
	l.nextConfirm = now.Add(confirmGap)
	if out.err == nil && l.phase == absent {
		l.r.opts.Logger.Info("node object was created by another client", "node", l.r.name, "uid", out.node.UID)
		l.serverNode = out.node
		l.startReporting(now)
	}
}

// handleDeleted handles a response that the Node does not exist: it sets the phase to absent, or the time of the next check.
func (l *loop) handleDeleted(now time.Time) {
	if l.phase == absent {
		l.confirmCount++
		l.nextConfirm = now.Add(confirmBackoff.After(l.confirmCount))
		return
	}
	l.nextConfirm, l.confirmCount = now.Add(confirmGap), 0
	if l.serverNode != nil {
		l.deletedUID = l.serverNode.UID
	}
	l.enterPhase(absent, now)
	l.hasReported, l.schedule.lastReport = false, time.Time{}
	l.deletions++
	consequence := "status reports and lease renewals stop until it is created again or the agent restarts"
	if l.r.opts.Reregister {
		l.schedule.delayReregistration(now, l.deletions)
		consequence = fmt.Sprintf("registering it again in %s", l.schedule.nextRegister.Sub(now).Round(time.Second))
	}
	l.r.opts.Logger.Error("node object was deleted: "+consequence, "node", l.r.name)
	if l.r.opts.Hooks.Deleted != nil {
		l.r.opts.Hooks.Deleted()
	}
}

func quoteShort(s string) string {
	const maxLength = 64
	if len(s) > maxLength {
		s = s[:maxLength]
	}
	return fmt.Sprintf("%q", s)
}
