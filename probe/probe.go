// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"strconv"
	"strings"
)

// MaxOutput is the number of bytes that a [Result] keeps of a container's output. Longer output is cut and is no failure.
const MaxOutput = 10 << 10

// Outcome is the outcome of a probe: success, warning, failure or unknown.
type Outcome uint8

// The outcomes. A Warning counts as a success. Unknown, the zero value, counts as a failure if a prober returns it without an
// error.
const (
	Unknown Outcome = iota
	Success
	Warning
	Failure
)

// String returns the outcome in lower case: "unknown", "success", "warning" or "failure".
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Success:
		return "success"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	default:
		return "outcome " + strconv.Itoa(int(o))
	}
}

// Result is the result of one call of a [Prober].
type Result struct {
	Outcome Outcome
	Output  string // for events and logs: up to [MaxOutput] bytes of output, or the reason of a failure
}

// NewResult returns a Result with the first [MaxOutput] bytes of output. It copies them if output is longer, so that the
// memory of output can be freed.
func NewResult(outcome Outcome, output string) Result {
	if len(output) > MaxOutput {
		output = strings.Clone(output[:MaxOutput])
	}
	return Result{Outcome: outcome, Output: output}
}

// Prober runs a probe of one container once.
//
// ctx carries the timeout of the probe. No response before its deadline is a [Result] with Failure. An error means that the probe
// could not run for a reason outside of the container; the call is then ignored. Probe may be called concurrently. It leaves no
// goroutine running, except calls with a context of [DetachContext].
type Prober interface {
	Probe(ctx context.Context) (Result, error)
}

// Func is a function that implements [Prober], for example in tests.
type Func func(ctx context.Context) (Result, error)

var _ Prober = Func(nil)

// Probe calls f.
func (f Func) Probe(ctx context.Context) (Result, error) { return f(ctx) }
