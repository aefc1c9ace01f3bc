// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// How the event stream is kept up.
const (
	assumeConnectedAfter = 500 * time.Millisecond // a stream this old without an event is taken to work
	minReconnect         = 100 * time.Millisecond // the wait before the first reconnect; it doubles with each
	maxReconnect         = 5 * time.Second        // the longest wait, and how long a stream lives to reset it
)

var errStreamEnded = errors.New("the stream ended without an error")

// stream listens to the runtime's events until ctx ends, connecting anew whenever the stream breaks.
//
// Nothing tells when a stream begins, and what happens before is missed. So there is a full relist as the
// connection is made, one when it has lived for settleAfter, and one with the first event: this event proves that
// the stream has begun, the relist sees all that came before, and the stream delivers the rest. Until the first of
// the latter two, full relists keep the short period.
func (g *Generator) followEvents(ctx context.Context) {
	reconnect := backoff.Policy{First: minReconnect, Max: maxReconnect}
	wait := reconnect.First
	for {
		began := time.Now()
		err := g.readEvents(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errStreamEnded
		}
		g.inbox.request(func(r *requests) { r.streaming = false })
		callHook(g.opts.Hooks.StreamFailed, err)
		if errors.Is(err, errors.ErrUnsupported) {
			g.opts.Logger.Info("runtime does not stream events", "error", err, "period", g.opts.Period)
			return
		}
		if time.Since(began) >= reconnect.Max {
			wait = reconnect.First
		}
		pause := backoff.Jitter(wait, 0.5, 1, g.opts.Rand())
		g.opts.Logger.Debug("event stream ended", "error", err, "reconnectIn", pause)
		if sleep.For(ctx, pause) != nil {
			return
		}
		wait = reconnect.Next(wait)
		// As Run begins it lists anyway, so that only a reconnect has to ask for it.
		g.inbox.request(func(r *requests) { r.full = true })
	}
}

// listen hands on the events of one connection until it ends.
func (g *Generator) readEvents(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		select {
		case <-time.After(assumeConnectedAfter):
			g.markConnected(nil, time.Time{})
		case <-ctx.Done():
		}
	})
	first := true
	return g.streamer.StreamEvents(ctx, func(e cri.Event) error {
		if f := g.opts.Hooks.StreamEvent; f != nil {
			f(e, time.Since(e.Time))
		}
		h := runtimeEvent{uid: e.Pod.UID, id: e.ID, event: e.Type}
		if first {
			first = false
			g.markConnected(&h, e.Time)
		} else {
			g.inbox.request(func(r *requests) { r.addHint(h, e.Time) })
		}
		return nil
	})
}

// connected notes that the connection works, proven by its first event or, without one, taken for granted, and
// asks for a full relist where that is news.
func (g *Generator) markConnected(proof *runtimeEvent, at time.Time) {
	first := false
	g.inbox.request(func(r *requests) {
		first = !r.streaming
		r.full = r.full || first || proof != nil
		r.streaming = true
		if proof != nil {
			r.addHint(*proof, at)
		}
	})
	if !first {
		return
	}
	g.opts.Logger.Debug("event stream works")
	if f := g.opts.Hooks.StreamConnected; f != nil {
		f()
	}
}
