// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package trace records the CRI calls of a subject of the benchmark: method, duration and concurrency. A [Proxy] forwards
// and records the calls of an agent; the benchmark records its own calls.
package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Trace collects the CRI calls of a subject. It is safe for concurrent use. The methods of a nil Trace do nothing, for a run
// without -trace.
type Trace struct {
	mu    sync.Mutex // guards the fields below
	calls []Call     // that have returned since the last phase
}

// Call is one CRI call.
type Call struct {
	Method     string
	Start, End time.Time
}

// endless is the method of the call that lasts as long as the agent. It delays no other call and is not traced.
const endless = "GetContainerEvents"

// Begin records the start of a call, and returns a function that records its end.
func (t *Trace) Begin(method string) (end func()) {
	if t == nil || method == endless {
		return func() {}
	}
	start := time.Now()
	return func() {
		c := Call{method, start, time.Now()}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls = append(t.calls, c)
	}
}

// Take returns the calls that have returned since the previous Take.
func (t *Trace) Take() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = nil
	return calls
}

// Phase summarizes the calls of one part of a measurement.
type Phase struct {
	Name  string      `json:"name"`
	Calls []CallStats `json:"calls"`
	// Under[n] is the number of seconds, from the first to the last call, in which n calls were in flight. Starting counts
	// only the calls that start pods.
	Under, Starting []float64
}

// CallStats summarizes the calls of one method.
type CallStats struct {
	Method string `json:"method"`
	Count  int    `json:"count"`
	// In seconds.
	Sum    float64 `json:"sum"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// NewPhase summarizes calls. Methods with the largest total duration come first.
func NewPhase(name string, calls []Call) Phase {
	seconds := map[string][]float64{}
	for _, c := range calls {
		seconds[c.Method] = append(seconds[c.Method], c.End.Sub(c.Start).Seconds())
	}
	p := Phase{Name: name, Under: underWay(calls), Starting: underWay(slices.DeleteFunc(slices.Clone(calls), func(c Call) bool {
		return !slices.Contains([]string{"RunPodSandbox", "CreateContainer", "StartContainer"}, c.Method)
	}))}
	for method, all := range seconds {
		s := CallStats{Method: method, Count: len(all), Median: median(all), Max: slices.Max(all)}
		for _, one := range all {
			s.Sum += one
		}
		p.Calls = append(p.Calls, s)
	}
	slices.SortFunc(p.Calls, func(a, b CallStats) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Method, b.Method))
	})
	return p
}

// underWay returns, for each n, the seconds in which n of the calls were in flight, from the start of the first to the end
// of the last.
func underWay(calls []Call) []float64 {
	type change struct {
		at time.Time
		by int
	}
	changes := make([]change, 0, 2*len(calls))
	for _, c := range calls {
		changes = append(changes, change{c.Start, 1}, change{c.End, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	var seconds []float64
	under := 0
	for i, c := range changes {
		under = max(under+c.by, 0) // the end of a call with duration 0 is counted before its start
		if i+1 == len(changes) {
			break
		}
		for len(seconds) <= under {
			seconds = append(seconds, 0)
		}
		seconds[under] += changes[i+1].at.Sub(c.at).Seconds()
	}
	return seconds
}

// Print writes the phase as a table.
func (p Phase) Print(out io.Writer) {
	fmt.Fprintf(out, "  calls while %s:\n", p.Name)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "    %-24s\tcount\tsum, s\tmedian, ms\tmax, ms\t\n", "")
	for _, c := range p.Calls {
		fmt.Fprintf(table, "    %-24s\t%d\t%.3f\t%.1f\t%.1f\t\n", c.Method, c.Count, c.Sum, 1e3*c.Median, 1e3*c.Max)
	}
	table.Flush()
	for _, line := range []struct {
		label   string
		seconds []float64
	}{{"calls under way", p.Under}, {"starts under way", p.Starting}} {
		var cells []string
		for n, seconds := range line.seconds {
			if seconds >= 0.0005 {
				cells = append(cells, fmt.Sprintf("%d: %.3f", n, seconds))
			}
		}
		fmt.Fprintf(out, "    s with n %s: %s\n", line.label, strings.Join(cells, ", "))
	}
}

// median returns the median of values, which is not empty.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
