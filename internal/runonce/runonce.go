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

// Wait is how long a used component may lack a running Run before that is reported.
const Wait = 8 * time.Second

// Errors about calls of Run.
var (
	ErrTwice  = errors.New("second call of Run")
	ErrNotRun = errors.New("Run is not running: call it in a goroutine of its own")
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

// NotRun returns an error that wraps [ErrNotRun] and names a component by package and type, such as "volume.Volumes".
func NotRun(component string) error { return fmt.Errorf("%s.%w", component, ErrNotRun) }

// Begin is called at the start of Run. It returns ErrTwice if Run was called before.
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

// End is called when Run returns.
func (g *Guard) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
}

// Spare records that the component is intentionally used without Run: a missing Run is not reported any more.
func (g *Guard) Spare() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exempt = true
	g.stopTimer()
}

// stopTimer cancels the report of a missing Run. The caller holds g.mu.
func (g *Guard) stopTimer() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// Needed reports whether Require or Need was called before, so that further calls have no effect.
func (g *Guard) Needed() bool { return g.needRecorded.Load() }

// Require calls Need with a report that logs [NotRun] as an error and passes it to hook, which may be nil. A component whose
// methods do not need Run calls it in its constructor.
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

// Need records that Run must be running. If Run has not started within Wait of the first call, report is called once, with no
// lock held. report may be nil.
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

// Err returns ErrNotRun if Run is needed and not running, unless Spare was called.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.needed && !g.running && !g.exempt {
		return ErrNotRun
	}
	return nil
}
