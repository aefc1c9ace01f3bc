// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"time"
)

// Target is a probe that a [Set] runs, with the current state of its container.
type Target struct {
	Key
	ContainerID string // newest container instance; empty if none was created yet
	// StartedAt is when the container started. Zero means the time at which a Target of this container is Running for the first
	// time.
	StartedAt time.Time
	// Running is true while the container runs. Otherwise it is not probed, and the outcome of its readiness and liveness probes
	// is Failure.
	Running bool
	// Started is true once the startup probe of the container has succeeded; its other probes wait for that. A [Set] ignores it
	// for a container without a Startup target, which counts as started while it runs.
	Started     bool
	Terminating bool // the pod is being deleted: only its readiness probes still run
	Spec        Spec
	// Prober runs the probe. The set owns the probers of accepted targets. It closes a prober that is an [io.Closer] and
	// comparable once, when no target uses it any more or Run returns, and never during a call. Targets may share a prober. A
	// prober without targets must not be used again.
	Prober Prober
}

// Validate returns an error that names the probe and its first invalid field. It returns nil if the target is valid.
func (t Target) Validate() error {
	if err := t.checkFields(); err != nil {
		return fmt.Errorf("%s: %w", t.Key, err)
	}
	return nil
}

func (t Target) checkFields() error {
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

// Value is the current outcome of a probe for one container instance, after applying the thresholds of its [Spec].
type Value struct {
	ContainerID string
	// Outcome is Success, Failure, or Unknown while a startup probe is undecided.
	Outcome Outcome
}
