// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"strconv"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Step is an operation on a volume, or on the device that volumes share.
type Step string

// The steps, in the words of an [Error].
const (
	StepSetUp    Step = "set up"
	StepUpdate   Step = "update" // SetUp of a volume that is set up: to refresh or to expand it
	StepTearDown Step = "tear down"
	StepStage    Step = "stage"
	StepUnstage  Step = "unstage"
)

// publicStep returns the public name of a step of the plan.
func publicStep(s plan.Step) Step { return Step(s.String()) }

// Error is the error of a step of a volume.
type Error struct {
	Step   Step
	Volume string // by its name in the pod
	Err    error
}

// Error returns `step volume "name": cause`.
func (e *Error) Error() string {
	return string(e.Step) + " volume " + strconv.Quote(e.Volume) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// FinalError is an error of [Plugin] SetUp or [Stager] Stage that leaves nothing on the node: no teardown is needed. A plugin wraps its error
// in it. It has no effect on a volume of a previous agent.
type FinalError struct {
	Err error
}

// Error returns the text of the cause.
func (f *FinalError) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *FinalError) Unwrap() error { return f.Err }

// StaleError is an error of [Plugin] SetUp that found the volume of a previous agent: containers can use the volume as it is, but it is not up
// to date. The update is retried while containers use the volume.
type StaleError struct {
	Err error
}

// Error returns the text of the cause.
func (s *StaleError) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *StaleError) Unwrap() error { return s.Err }

// failureOf returns the consequences of the error of a step for the plan; nil: err is nil.
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
