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

// Fixed times for the event stream of the runtime.
const (
	assumeConnectedAfter = 500 * time.Millisecond // a stream without events counts as working after this time
	minReconnect         = 100 * time.Millisecond // wait before the first reconnect; it doubles with each
	maxReconnect         = 5 * time.Second        // longest wait; a stream that lived this long resets the wait
)

var errStreamEnded = errors.New("the stream ended without an error")

// followEvents reads the event stream of the runtime until ctx ends. It reconnects when the stream breaks. It returns early
// if the runtime does not support the stream.
//
// The runtime does not report when a stream is established, and events before that time are lost. Therefore followEvents
// requests full relists: after a reconnect, after assumeConnectedAfter, and at the first event. The first event proves that
// the stream is established. Until then, full relists keep the short period.
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
		// The first full relist of Run covers the first connection, so only a reconnect requests one.
		g.inbox.request(func(r *requests) { r.full = true })
	}
}

// readEvents connects to the event stream and adds its events to the inbox. It returns when the connection breaks or ctx
// ends.
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

// markConnected records that the event stream works. proof is the first event, or nil if none has arrived within
// assumeConnectedAfter.
func (g *Generator) markConnected(proof *runtimeEvent, eventTime time.Time) {
	first := false
	g.inbox.request(func(r *requests) {
		first = !r.streaming
		r.full = r.full || first || proof != nil // the stream may have missed earlier changes
		r.streaming = true
		if proof != nil {
			r.addHint(*proof, eventTime)
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
