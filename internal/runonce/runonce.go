// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package runonce guards the Run method of a component: a second call is an error, and a program that uses the component without
// calling Run is reported.
package runonce

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Wait is how long a component that is used may lack its Run before that is reported.
const Wait = 8 * time.Second

// Errors that callers may see.
var (
	ErrTwice  = errors.New("second call of Run")
	ErrNotRun = errors.New("Run is not running: call it in a goroutine of its own")
)

// Guard guards one Run. The zero value is ready. Its methods may be called from any goroutine.
type Guard struct {
	settled atomic.Bool // Need has nothing left to do

	mu      sync.Mutex // guards what follows
	begun   bool
	running bool
	needed  bool
	spared  bool
	timer   *time.Timer // reports that Run is missing; nil: it was not needed yet
}

// NotRun returns an [ErrNotRun] that names a component by package and type, such as "volume.Volumes".
func NotRun(component string) error { return fmt.Errorf("%s.%w", component, ErrNotRun) }

// Begin is called when Run begins, and returns ErrTwice when it has begun before.
func (g *Guard) Begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun {
		return ErrTwice
	}
	g.begun, g.running = true, true
	g.stop()
	return nil
}

// End is called when Run ends.
func (g *Guard) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
}

// Spare records that the component is used without Run, which it can be: a missing Run is not reported any more.
func (g *Guard) Spare() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spared = true
	g.stop()
}

// stop ends the wait for Run. The lock is held.
func (g *Guard) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// Needed reports whether Require or Need was called: neither has anything left to do then.
func (g *Guard) Needed() bool { return g.settled.Load() }

// Require is Need that logs [NotRun] of a component as an error, and calls hook with it, which may be nil. A component whose methods
// do not need Run calls it in its constructor.
func (g *Guard) Require(component string, log *slog.Logger, hook func(error)) {
	if g.settled.Load() {
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

// Need records that there is work for Run. If Run has not begun within Wait of the first call, report is called once, with no lock
// held. A nil report is not called.
func (g *Guard) Need(report func()) {
	if g.settled.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.needed && !g.begun && !g.spared && report != nil {
		g.timer = time.AfterFunc(Wait, func() {
			if g.Err() != nil {
				report()
			}
		})
	}
	g.needed = true
	g.settled.Store(true)
}

// Err returns ErrNotRun when there is work for Run and it is not running, unless the component is used without.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.needed && !g.running && !g.spared {
		return ErrNotRun
	}
	return nil
}
