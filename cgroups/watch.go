// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Trigger is something that a [Watcher] waits for: a file of pressure with an amount of lost time, or the counters of
// memory.events.
type Trigger struct {
	File   string        // "cpu.pressure", "memory.pressure", "io.pressure" or "memory.events"
	Full   bool          // count the time in which all processes waited, not just one; of pressure alone
	Stall  time.Duration // how much time has to be lost in a window, more than 0 and at most Window; of pressure alone
	Window time.Duration // MinWindow to MaxWindow; of pressure alone
}

// Bounds of a window of pressure. Without CAP_SYS_RESOURCE the kernel takes multiples of 2 s only, and refuses others as
// invalid.
const (
	MinWindow = 500 * time.Millisecond
	MaxWindow = 10 * time.Second
)

// Validate returns an error that names the field whose value no kernel takes.
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

// String returns the trigger as the kernel takes it, after the name of its file: "memory.pressure some 150000 1000000".
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

// Watcher is the optional capability of a [Reader] to wait for what happens to the memory of a cgroup instead of asking
// for it again and again.
type Watcher interface {
	// Watch calls fn, from its own goroutine and one call at a time, whenever one of the triggers fires: pressure at
	// most once in a window, events at most a hundred times a second. What fires while fn runs may be told once.
	// It returns nil when ctx has ended, and an error wrapping [io/fs.ErrNotExist] where the cgroup is absent, at the
	// latest a few seconds after it went. Where the kernel has no such file, the error wraps [errors.ErrUnsupported]:
	// v1 has pressure at the top of the tree alone, which is that of the machine. It also returns an error where the
	// kernel drops a trigger, because the pressure of the cgroup is switched off.
	Watch(ctx context.Context, p Path, triggers []Trigger, fn func(Trigger)) error
}
