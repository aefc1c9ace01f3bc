// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// unmatchedError is why a pod cannot have the volumes of these names: there are no plugins for their kinds any more. It has the kubelet's text.
// Source: WaitForAttachAndMount in pkg/kubelet/volumemanager/volume_manager.go.
type unmatchedError []string

// Error lists the volumes, and the cause for each.
func (e unmatchedError) Error() string {
	names := slices.Sorted(slices.Values(e))
	var causes []error
	for _, name := range names {
		causes = append(causes, fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched", name))
	}
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %v", names, names, join(causes))
}

// maxListed is how many volumes an error names.
const maxListed = 5

// joined is several errors in one line.
type joined []error

// join returns errors as one, whose text names the first of them.
func join(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return joined(errs)
}

// Error returns the texts of the first errors.
func (j joined) Error() string {
	var texts []string
	for i, err := range j {
		if i == maxListed {
			texts = append(texts, "and "+strconv.Itoa(len(j)-i)+" more")
			break
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (j joined) Unwrap() []error { return j }
