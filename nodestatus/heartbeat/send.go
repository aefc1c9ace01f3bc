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

// What Report answers where nothing can be sent.
var errNotRegistered = errors.New("the API server does not have the Node")

// outcome is how a request has ended.
type outcome struct {
	what     request
	err      error
	node     *corev1.Node       // as the API server has it; nil: it was not told
	events   []nodestatus.Event // that are true now
	sent     bool               // the API server has a status of ours
	changed  bool               // which was another one than it had before
	isGone   bool               // the API server has no such Node
	attempts int
}

// start returns the function that sends a request, or nil. It shares nothing with the loop that either changes.
func (l *loop) start(what request, changed bool) func(context.Context) outcome {
	r, known, announced := l.r, l.known, l.announced
	switch what {
	case register:
		return func(ctx context.Context) outcome { return r.register(ctx, announced) }
	case confirm:
		return r.confirm
	case report:
		l.pace.sending(changed)
		return func(ctx context.Context) outcome { return r.report(ctx, known, announced) }
	default:
		return nil
	}
}

// facts are the facts now.
func (r *Reporter) facts(announced nodestatus.Announced) nodestatus.Facts {
	f := r.gather.current(r.wall())
	f.Announced = announced
	return f
}

// register creates the Node, or makes the one that is there what it should be.
func (r *Reporter) register(ctx context.Context, announced nodestatus.Announced) outcome {
	initial, events := nodestatus.Initial(r.facts(announced))
	node, err := r.nodes.Create(ctx, initial)
	if err == nil {
		return outcome{what: register, node: node, events: events, sent: true, changed: true}
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return outcome{what: register, err: err}
	}
	existing, getErr := r.nodes.Get(ctx, r.name)
	if getErr != nil {
		if apierrors.IsForbidden(err) {
			getErr = fmt.Errorf("%w; %w", err, getErr) // the first says why
		}
		return outcome{what: register, err: getErr}
	}
	node, changed := nodestatus.Reconcile(existing, initial)
	if r.opts.ResetExtendedResources {
		reset, found := nodestatus.ZeroExtendedResources(node)
		node, changed = reset, changed || found
	}
	if !changed {
		return outcome{what: register, node: existing}
	}
	node, err = r.patch(ctx, existing, node)
	return outcome{what: register, node: node, err: err}
}

// patch sends what makes one Node another, and returns what the API server has then.
func (r *Reporter) patch(ctx context.Context, old, node *corev1.Node) (*corev1.Node, error) {
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

// confirm asks whether the Node is there.
func (r *Reporter) confirm(ctx context.Context) outcome {
	node, err := r.nodes.Get(ctx, r.name)
	if err != nil {
		return outcome{what: confirm, err: err, isGone: apierrors.IsNotFound(err)}
	}
	return outcome{what: confirm, node: node}
}

// report sends the status, in five tries at most. The first is based on what is known, the others on what the API server has.
func (r *Reporter) report(ctx context.Context, known *corev1.Node, announced nodestatus.Announced) outcome {
	out := outcome{what: report}
	for out.attempts = 1; ; out.attempts++ {
		out.err = r.tryReport(ctx, known, announced, &out)
		if out.isGone = apierrors.IsNotFound(out.err); out.err == nil || out.isGone {
			return out
		}
		if ctx.Err() != nil || out.attempts == heartbeatTries {
			return out
		}
		call(r.opts.Hooks.Error, out.err)
		if out.attempts > 1 || !isAnswer(out.err) {
			r.client.CloseConnections()
		}
		known = nil
	}
}

// tryReport is one try. Without a known Node it asks for it.
func (r *Reporter) tryReport(ctx context.Context, known *corev1.Node, announced nodestatus.Announced, out *outcome) error {
	var err error
	if known == nil {
		if known, err = r.nodes.Get(ctx, r.name); err != nil {
			return err
		}
	}
	built, events := nodestatus.Build(known, r.facts(announced))
	node, err := r.patch(ctx, known, built)
	if err != nil {
		return err
	}
	out.node, out.events, out.sent, out.changed = node, events, true, nodestatus.Changed(known, built)
	return nil
}

// finish takes the outcome of a request.
func (l *loop) finish(out outcome, now time.Time) {
	l.busy = false
	if out.err != nil && !out.isGone {
		call(l.r.opts.Hooks.Error, out.err)
	}
	if out.node != nil && (l.known == nil || newer(out.node, l.known)) {
		l.know(out.node)
	}
	if out.sent {
		l.sent(out, now)
	}
	switch {
	case out.isGone:
		l.lose(now)
	case out.what == register:
		l.finishRegister(out, now)
	case out.what == confirm:
		l.finishConfirm(out, now)
	case out.err != nil:
		l.r.opts.Logger.Warn("report status of node", "node", l.r.name, "attempts", out.attempts, "error", cert.ExplainError(l.r.config, out.err))
	}
	if out.what == report {
		if out.isGone {
			out.err = errNotRegistered
		}
		l.pace.looked(now, true)
		l.pace.ready() // or it would be tried ten times a second
		l.answer(out.err)
	}
}

// sent notes that the API server has a status, and tells what follows.
func (l *loop) sent(out outcome, now time.Time) {
	hooks := &l.r.opts.Hooks
	if out.what == register {
		l.pace.sending(true)
	}
	l.pace.sent(now)
	l.complete = true
	if isReady(out.node) {
		l.pace.ready()
	}
	l.emit(out.events)
	call(hooks.Reported, out.node)
	l.told = true
	call(hooks.VolumesInUse, out.node.Status.VolumesInUse)
}

func (l *loop) finishRegister(out outcome, now time.Time) {
	l.pace.registered(now, out.err)
	if out.err != nil {
		l.r.opts.Logger.Warn("register node", "node", l.r.name, "attempts", l.pace.attempts, "error", cert.ExplainError(l.r.config, out.err))
		return
	}
	l.r.opts.Logger.Info("node registered", "node", l.r.name, "uid", out.node.UID, "created", out.sent)
	l.arrive(now)
}

// arrive begins to report a Node that is there.
func (l *loop) arrive(now time.Time) {
	l.enter(registered, now)
	l.confirm = now.Add(confirmGap) // the watch has as long to show it
	node, _ := l.build(l.r.facts(l.announced))
	l.publish(node)
	l.pace.tick = now // what has changed meanwhile is sent
	call(l.r.opts.Hooks.Registered, l.known)
	l.r.appeared.Call()
}

func (l *loop) finishConfirm(out outcome, now time.Time) {
	l.confirm = now.Add(confirmGap)
	if out.err == nil && l.phase == deleted {
		l.r.opts.Logger.Info("somebody has made the node again", "node", l.r.name, "uid", out.node.UID)
		l.known = out.node
		l.arrive(now)
	}
}

// lose notes that somebody has deleted the Node.
func (l *loop) lose(now time.Time) {
	if l.phase == deleted {
		l.confirms++
		l.confirm = now.Add(confirmBackoff.After(l.confirms))
		return
	}
	l.confirm, l.confirms = now.Add(confirmGap), 0
	if l.known != nil {
		l.lost = l.known.UID
	}
	l.enter(deleted, now)
	l.complete, l.pace.lastReport = false, time.Time{}
	l.deletions++
	what := "its status and lease rest until somebody makes it again, or this program starts again"
	if l.r.opts.Reregister {
		l.pace.deleted(now, l.deletions)
		what = fmt.Sprintf("it is registered again in %s", l.pace.register.Sub(now).Round(time.Second))
	}
	l.r.opts.Logger.Error("somebody has deleted the node: "+what, "node", l.r.name)
	if l.r.opts.Hooks.Deleted != nil {
		l.r.opts.Hooks.Deleted()
	}
}

func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most]
	}
	return fmt.Sprintf("%q", s)
}
