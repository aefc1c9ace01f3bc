// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"strconv"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Step is an operation on a volume, or on a [Device] that volumes share. Its text is part of the message of an [Error].
type Step string

// Steps of volumes (set up, update, tear down) and of devices (stage, unstage).
const (
	StepSetUp    Step = "set up"
	StepUpdate   Step = "update" // SetUp of a volume that is set up, to refresh or expand it
	StepTearDown Step = "tear down"
	StepStage    Step = "stage"
	StepUnstage  Step = "unstage"
)

// publicStep converts s to a Step of this package.
func publicStep(s plan.Step) Step { return Step(s.String()) }

// Error is the error of one step of a volume. Methods of [Volumes] return it, and hooks receive it.
type Error struct {
	Step   Step
	Volume string // name in pod.spec.volumes; for StepUnstage the name on disk
	Err    error
}

// Error returns `step volume "name": cause`.
func (e *Error) Error() string {
	return string(e.Step) + " volume " + strconv.Quote(e.Volume) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// FinalError wraps an error of [Plugin] SetUp or [Stager] Stage to say that nothing of the volume remains on the node: no
// teardown is needed. [Volumes] ignores this for a volume that a previous agent process may have set up.
type FinalError struct {
	Err error
}

// Error returns the text of the cause.
func (f *FinalError) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *FinalError) Unwrap() error { return f.Err }

// StaleError wraps an error of [Plugin] SetUp to say that the volume is usable but not up to date. It is for a volume that a
// previous agent process has set up. Containers may start, and the update is retried.
type StaleError struct {
	Err error
}

// Error returns the text of the cause.
func (s *StaleError) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *StaleError) Unwrap() error { return s.Err }

// failureOf converts the error of a step to a Failure, by which package plan decides when to retry. It returns nil for a nil
// error.
func failureOf(err error) *plan.Failure {
	if err == nil {
		return nil
	}
	_, final := errors.AsType[*FinalError](err)
	_, stale := errors.AsType[*StaleError](err)
	server, ok := errors.AsType[interface {
		error
		Unanswered() bool
	}](err)
	return &plan.Failure{NothingLeft: final, Usable: stale, Unavailable: ok && server.Unanswered()}
}
