// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	changeGap   = time.Second            // the least time between two looks that Changed asks for
	fastPeriod  = 100 * time.Millisecond // between looks until the node is first reported as ready
	fastTimeout = 120 * time.Second      // after which it is left to the other looks
	periodSpan  = 0.04                   // the part of a period that is added at random, as the kubelet does
)

// Times between attempts.
var (
	registerBackoff   = backoff.Policy{First: 100 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // never written
	reregisterBackoff = backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}       //nolint:gochecknoglobals // never written
)

// pace says when a Reporter looks at the node, and when what it sees is sent although it is as before. It reads no clock: the
// times that it gets must come from one that does not jump.
type pace struct {
	period, report time.Duration  // between looks, and between reports of a status that has not changed
	random         func() float64 // in [0,1)

	tick     time.Time // the next look
	asked    bool      // for a look before
	lastTook time.Time // when the last look began that was asked for

	lastReport time.Time // when a status was last sent; zero: never
	delay      time.Duration

	fastUntil time.Time // until when looks follow each other fast; zero: no longer
	fast      time.Time // the next of these

	attempts int       // to register, that failed in a row
	register time.Time // the next; zero: now
}

// begin starts the looks.
func (p *pace) begin(now time.Time) {
	p.tick, p.fast, p.fastUntil = now, now, now.Add(fastTimeout)
}

// ask wants a look as soon as the gap to the last one that was asked for allows it.
func (p *pace) ask() { p.asked = true }

// due reports whether it is time for a look, and for one that is about more than whether the node is ready.
func (p *pace) due(now time.Time) (look, whole bool) {
	whole = !now.Before(p.tick) || p.asked && !now.Before(p.askedAt())
	return whole || !p.fastUntil.IsZero() && !now.Before(p.fast), whole
}

func (p *pace) askedAt() time.Time { return p.lastTook.Add(changeGap) }

// looking notes that a look begins.
func (p *pace) looking(now time.Time) {
	if p.asked && !now.Before(p.askedAt()) {
		p.asked, p.lastTook = false, now
	}
}

// looked notes that a look, and what was sent because of it, is over.
func (p *pace) looked(now time.Time, whole bool) {
	if whole {
		p.tick = now.Add(backoff.Jitter(p.period, 1, 1+periodSpan, p.random()))
	}
	p.fast = now.Add(fastPeriod)
	if !now.Before(p.fastUntil) {
		p.ready()
	}
}

// ready ends the fast looks: the API server knows that the node is ready.
func (p *pace) ready() { p.fastUntil = time.Time{} }

// expired reports whether it is time to send even a status that has not changed.
func (p *pace) expired(now time.Time) bool {
	return p.lastReport.IsZero() || now.Sub(p.lastReport) >= p.report+p.delay
}

// sending chooses when the report after the one that is about to be sent is due. Many nodes that changed at the same time
// do not report at the same time ever after; see the kubelet's tryUpdateNodeStatus.
func (p *pace) sending(changed bool) {
	p.delay = 0
	if changed || p.lastReport.IsZero() {
		p.delay = backoff.Jitter(p.report, -0.5, 0.5, p.random())
	}
}

// sent notes that the API server has the status.
func (p *pace) sent(now time.Time) { p.lastReport = now }

// mayRegister reports whether it is time to try to register.
func (p *pace) mayRegister(now time.Time) bool { return !now.Before(p.register) }

// registered notes how an attempt to register has ended.
func (p *pace) registered(now time.Time, err error) {
	if err == nil {
		p.attempts, p.register = 0, time.Time{}
		return
	}
	p.attempts++
	p.register = now.Add(registerBackoff.After(p.attempts))
}

// deleted notes that the node was deleted for the given time, the first being 1, and shall be registered again.
func (p *pace) deleted(now time.Time, times int) {
	p.register = now.Add(backoff.Jitter(reregisterBackoff.After(times), 1, 1.5, p.random()))
}

// next returns when there is something to do. Registering is part of it where that is what is waited for.
func (p *pace) next(registering bool) time.Time {
	at := p.tick
	if p.asked {
		at = sleep.Earlier(at, p.askedAt())
	}
	if !p.fastUntil.IsZero() {
		at = sleep.Earlier(at, p.fast)
	}
	if registering {
		at = sleep.Earlier(at, p.register)
	}
	return at
}
