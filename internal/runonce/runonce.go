// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package runonce is for components with a Run: it refuses a second one, and notices that the first is missing.
package runonce

import (
	"errors"
	"sync"
	"time"
)

// Wait is how long something that needs Run is kept waiting before that is told.
const Wait = 8 * time.Second

// Errors that callers may see.
var (
	ErrTwice  = errors.New("second call of Run")
	ErrNotRun = errors.New("nobody runs it, and something waits for that")
)

// Guard watches over one Run. The zero value is ready.
type Guard struct {
	mu      sync.Mutex // guards what follows
	begun   bool
	running bool
	needed  bool
	timer   *time.Timer // tells that Run is missing; nil: nobody waits
}

// Begin is called when Run begins, and returns ErrTwice when it has begun before.
func (g *Guard) Begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun {
		return ErrTwice
	}
	g.begun, g.running = true, true
	if g.timer != nil {
		g.timer.Stop()
	}
	return nil
}

// End is called when Run ends.
func (g *Guard) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
}

// Need says that there is something to do for Run. If Run does not begin within Wait of the first call, tell is called
// once, with no lock held; nil is not.
func (g *Guard) Need(tell func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.needed && !g.begun && tell != nil {
		g.timer = time.AfterFunc(Wait, func() {
			if g.Err() != nil {
				tell()
			}
		})
	}
	g.needed = true
}

// Err returns ErrNotRun when there is something to do and Run is not running.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.needed && !g.running {
		return ErrNotRun
	}
	return nil
}
