// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"strconv"
	"strings"
)

// MaxOutput is the most a [Result] keeps of what a container answered, in
// bytes. The rest is dropped; a long answer is no failure.
const MaxOutput = 10 << 10

// Outcome is what a probe found.
type Outcome uint8

// The outcomes. A warning counts as a success, with an event; unknown is the zero
// value, and counts as a failure when a prober returns it without an
// error.
const (
	Unknown Outcome = iota
	Success
	Warning
	Failure
)

// String returns the outcome in lower case: "unknown", "success", "warning" or
// "failure".
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

// Result is what one probe found.
type Result struct {
	Outcome Outcome
	Output  string // for people: at most [MaxOutput] bytes of the answer, or why it is a failure
}

// NewResult returns a result with the first [MaxOutput] bytes of output. It copies what it cuts off from the rest, so that the
// result does not keep a longer output in memory.
func NewResult(o Outcome, output string) Result {
	if len(output) > MaxOutput {
		output = strings.Clone(output[:MaxOutput])
	}
	return Result{Outcome: o, Output: output}
}

// Prober probes one container.
//
// The context carries the timeout of the probe: a container that has not
// answered when it ends has failed, which is a [Result]. The error says that the
// probe could not be made, for a reason that is not the container's; such a
// probe counts for nothing. Probe may be called from several goroutines. It leaves
// nothing running behind, but for what [Outlast] knows of.
type Prober interface {
	Probe(ctx context.Context) (Result, error)
}

// Func is a function that is a [Prober].
type Func func(ctx context.Context) (Result, error)

var _ Prober = Func(nil)

// Probe calls f.
func (f Func) Probe(ctx context.Context) (Result, error) { return f(ctx) }
