// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Trigger is a condition that a [Watcher] waits for: a stall time in a pressure file, or a change of the counters in
// memory.events.
type Trigger struct {
	File   string        // "cpu.pressure", "memory.pressure", "io.pressure" or "memory.events"
	Full   bool          // count time in which all processes waited, not only one; pressure files only
	Stall  time.Duration // lost time per Window that fires, above 0 and at most Window; pressure files only
	Window time.Duration // MinWindow to MaxWindow; pressure files only
}

// Bounds of Trigger.Window. Without CAP_SYS_RESOURCE the kernel accepts only multiples of 2 s; other windows are EINVAL.
const (
	MinWindow = 500 * time.Millisecond
	MaxWindow = 10 * time.Second
)

// Validate returns an error that names the first field whose value no kernel accepts.
func (t Trigger) Validate() error {
	switch t.File {
	case "memory.events":
		if t.Full || t.Stall != 0 || t.Window != 0 {
			return fmt.Errorf("trigger %s: Full, Stall and Window are for pressure", t.File)
		}
		return nil
	case "cpu.pressure", "memory.pressure", "io.pressure":
	default:
		return fmt.Errorf("trigger file %q must be cpu.pressure, memory.pressure, io.pressure or memory.events", t.File)
	}
	if t.Window < MinWindow || t.Window > MaxWindow {
		return fmt.Errorf("trigger %s: window %v must be %v to %v", t.File, t.Window, MinWindow, MaxWindow)
	}
	if t.Stall < time.Microsecond || t.Stall > t.Window {
		return fmt.Errorf("trigger %s: stall %v must be 1µs to the window of %v", t.File, t.Stall, t.Window)
	}
	return nil
}

// String returns the file of the trigger and the text that is written to it. An example is "memory.pressure some 150000
// 1000000".
func (t Trigger) String() string {
	if t.File == "memory.events" {
		return t.File
	}
	kind := " some "
	if t.Full {
		kind = " full "
	}
	return t.File + kind + strconv.FormatInt(t.Stall.Microseconds(), 10) + " " + strconv.FormatInt(t.Window.Microseconds(), 10)
}

// Watcher is an optional interface of a [Reader]: it waits for pressure and memory events of a cgroup, so that callers need not
// poll.
type Watcher interface {
	// Watch calls fn each time one of the triggers fires, never concurrently, until ctx ends; then it returns nil. A pressure
	// trigger fires at most once per Window, memory.events at most 100 times per second. Events during a call of fn may be
	// merged.
	//
	// If the cgroup does not exist, the error wraps [io/fs.ErrNotExist]; a removal is detected within a few seconds. If the
	// kernel does not have the file, the error wraps [errors.ErrUnsupported]: v1 has pressure of the whole machine only, at the
	// root. It is also an error if the kernel drops a trigger because pressure of the cgroup was disabled.
	Watch(ctx context.Context, p Path, triggers []Trigger, fn func(Trigger)) error
}
