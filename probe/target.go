// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"time"
)

// Target is a probe that is wanted, and its container as it is now.
type Target struct {
	Key
	ContainerID string // of the newest container of that name; empty: there is none yet
	// StartedAt is when the container started. Zero is the time at which a target first says that it runs.
	StartedAt time.Time
	// Running says that the container runs. Otherwise it is yet to run, or has terminated, for good or not: its probes wait,
	// and its readiness and liveness are a Failure.
	Running bool
	// Started says that the startup probe of the container has succeeded: the others wait for that. It means nothing
	// where a [Set] is given no target of kind Startup for the container: one without a startup probe has started once it
	// runs.
	Started     bool
	Terminating bool // its pod is being deleted: only readiness matters any more
	Spec        Spec
	// Prober makes the probe. A set owns the probers of the targets that it accepts: one that is an [io.Closer], and comparable as
	// pointers are, it closes once, when no target has it any more or Run ends, and never during a call. Targets may
	// share a prober, and the same value in the next Sync is the same prober. One that was dropped must not come back.
	Prober Prober
}

// Validate returns an error that names the probe and the field that is invalid.
func (t Target) Validate() error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("%s: %w", t.Key, err)
	}
	return nil
}

func (t Target) validate() error {
	switch {
	case t.PodUID == "":
		return errors.New("field PodUID: is empty")
	case t.Container == "":
		return errors.New("field Container: is empty")
	case t.Kind > Liveness:
		return fmt.Errorf("field Kind: %d is none of Startup, Readiness and Liveness", t.Kind)
	case t.Prober == nil:
		return errors.New("field Prober: is nil")
	}
	return t.Spec.Validate()
}

// Value is what the probes of a container add up to.
type Value struct {
	ContainerID string
	// Outcome is Success, Failure, or Unknown where a startup probe has not decided yet.
	Outcome Outcome
}
