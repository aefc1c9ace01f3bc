// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package runonce checks that the Run method of a component is called exactly once. A second call is an error, and a component
// that is used without a running Run is reported.
package runonce

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Wait is the time after the first use of a component within which its Run must be called. A missing Run is reported then.
const Wait = 8 * time.Second

// Errors about calls of Run.
var (
	ErrTwice  = errors.New("second call of Run")
	ErrNotRun = errors.New("Run is not running: call it in a goroutine of its own") //nolint:staticcheck // the name of the method
)

// Guard checks the calls of one Run method. The zero value is ready. Its methods may be called from any goroutine.
type Guard struct {
	needRecorded atomic.Bool // further calls of Need have no effect

	mu      sync.Mutex // guards the fields below
	started bool
	running bool
	needed  bool
	exempt  bool
	timer   *time.Timer // reports a missing Run; nil: Run was not needed yet
}

// NotRun returns an error that Run of a component is not running. It wraps [ErrNotRun]. component consists of package and
// type, such as "volume.Volumes".
func NotRun(component string) error { return fmt.Errorf("%s.%w", component, ErrNotRun) }

// Begin records the start of Run. Run must call it first. It returns ErrTwice if Run was called before.
func (g *Guard) Begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return ErrTwice
	}
	g.started, g.running = true, true
	g.stopTimer()
	return nil
}

// End records that Run returns. Run calls it last.
func (g *Guard) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
}

// Spare records that this component works without Run. A missing Run is then not reported.
func (g *Guard) Spare() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exempt = true
	g.stopTimer()
}

// stopTimer cancels the timer that reports a missing Run, if there is one. The caller holds g.mu.
func (g *Guard) stopTimer() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// Needed reports whether [Guard.Need] or [Guard.Require] was called before. Further calls of them then have no effect.
func (g *Guard) Needed() bool { return g.needRecorded.Load() }

// Require is a [Guard.Need] that logs the error of [NotRun] and passes it to hook, which may be nil, if Run is not called in
// time. A component calls it in its constructor, or in each method that needs Run.
func (g *Guard) Require(component string, log *slog.Logger, hook func(error)) {
	if g.needRecorded.Load() {
		return
	}
	g.Need(func() {
		err := NotRun(component)
		log.Error("a part of the agent is not running", "error", err)
		if hook != nil {
			hook(err)
		}
	})
}

// Need records that Run must be running from now on. If Run is not called within [Wait] after the first call of Need, the
// guard calls report once, with no lock held. report may be nil.
func (g *Guard) Need(report func()) {
	if g.needRecorded.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.needed && !g.started && !g.exempt && report != nil {
		g.timer = time.AfterFunc(Wait, func() {
			if g.Err() != nil {
				report()
			}
		})
	}
	g.needed = true
	g.needRecorded.Store(true)
}

// Err returns ErrNotRun if Need was called but Run is not running: it was not called, or has returned. After Spare, Err
// returns nil.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.needed && !g.running && !g.exempt {
		return ErrNotRun
	}
	return nil
}
