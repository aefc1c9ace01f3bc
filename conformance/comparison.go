// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Comparison compares a function of the kubelet with the corresponding function of nodeagent, on generated inputs.
type Comparison[In, Out any] struct {
	Make          func(*Choices) In
	Kubelet, Ours func(In) Out
	Same          func(kubelet, ours Out) bool // nil compares all fields of the values
	Exceptions    []Exception[In, Out]
}

// Exception is an intended difference between the kubelet and nodeagent. It is permitted only for inputs that When selects. It
// must also occur, unless it is rare: the comparison fails if the results no longer differ for any of these inputs.
type Exception[In, Out any] struct {
	Name   string
	Reason string
	When   func(In) bool
	// Want converts the kubelet's result into the expected result of nodeagent, and may write to its argument. Several exceptions
	// may apply, one after the other. Nil accepts any result, for differences that cannot be computed simply.
	Want func(in In, kubelet Out) Out
	// Rare permits that the exception does not occur. A Comparison finds it in fewer than one of 20,000 inputs.
	Rare bool
}

// Flags are the command line flags of a test run.
type Flags struct {
	seed   *uint64
	inputs *int
	asked  *int // value of the flag; inputs may be lower for slow comparisons
}

// NewFlags adds the command line flags -seed and -inputs to the flag set.
func NewFlags(set *flag.FlagSet) Flags {
	inputs := set.Int("inputs", 200_000, "how many inputs each comparison gets")
	return Flags{seed: set.Uint64("seed", 1, "which inputs to generate; 0 for new ones"), inputs: inputs, asked: inputs}
}

// Inputs returns the number of inputs that the flags request. It is for tests that do not use [Comparison].
func (f Flags) Inputs() int { return *f.inputs }

// Seed returns the value of the flag -seed, the seed for the inputs. If the value is zero, each call returns a new seed.
func (f Flags) Seed() uint64 {
	if *f.seed == 0 {
		return uint64(time.Now().UnixNano())
	}
	return *f.seed
}

// AtMost returns a copy of f with at most this number of inputs, for slow comparisons.
func (f Flags) AtMost(inputs int) Flags {
	inputs = min(inputs, *f.inputs)
	return Flags{seed: f.seed, inputs: &inputs, asked: f.asked}
}

// enough is the number of inputs among which every exception must occur. A comparison limited by AtMost may use fewer.
const enough = 100_000

// Run compares the results of the kubelet and nodeagent for random inputs, and fails with a minimal input if they differ. With
// 100,000 inputs or more, it also fails if an exception of c that is not rare never occurs.
func (c Comparison[In, Out]) Run(t *testing.T, flags Flags) {
	t.Helper()
	seed := flags.Seed()
	start := time.Now()
	hits := make([]atomic.Int64, len(c.Exceptions))
	var failed atomic.Pointer[[]byte]
	var workers sync.WaitGroup
	step := runtime.GOMAXPROCS(0)
	for first := range step {
		workers.Go(func() {
			for i := first; i < *flags.inputs && failed.Load() == nil; i += step {
				data := RandomBytes(seed, uint64(i))
				switch which := c.compare(data).exception; which {
				case same:
				case different:
					failed.Store(&data)
				default:
					hits[which].Add(1)
				}
			}
		})
	}
	workers.Wait()
	if data := failed.Load(); data != nil {
		t.Fatalf("seed %d: %s", seed, c.report(c.shrink(*data)))
	}
	for i, e := range c.Exceptions {
		t.Logf("%7d times: %s: %s", hits[i].Load(), e.Name, e.Reason)
		if hits[i].Load() == 0 && *flags.asked >= enough && !e.Rare {
			t.Errorf("exception %q does not occur any more", e.Name)
		}
	}
	t.Logf("seed %d: %d inputs in %v", seed, *flags.inputs, time.Since(start).Round(time.Millisecond))
}

// Fuzz compares the results of the kubelet and nodeagent for the inputs of a fuzzer. It fails if they differ and no
// exception explains why.
func (c Comparison[In, Out]) Fuzz(f *testing.F) {
	f.Helper()
	f.Add([]byte{})
	for i := range uint64(16) {
		f.Add(RandomBytes(0, i))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if c.compare(data).exception == different {
			t.Fatal(c.report(data))
		}
	})
}

// Values of result.exception that are no index of an exception.
const (
	same      = -1
	different = -2
)

// result has the results of both functions for one input.
type result[In, Out any] struct {
	in            In
	kubelet, ours outcome[Out]
	exception     int
}

// outcome is the result of a function, or its panic.
type outcome[Out any] struct {
	value Out
	panic any
}

// compare generates the input that data encodes, and runs both functions on it.
func (c Comparison[In, Out]) compare(data []byte) (r result[In, Out]) {
	r.in = c.Make(NewChoices(data))
	// Each function gets its own input: code of the kubelet writes to quantities in it.
	r.kubelet, r.ours = call(c.Kubelet, c.Make(NewChoices(data))), call(c.Ours, r.in)
	r.exception = different
	if r.ours.panic != nil || r.changed(c.Make, data) {
		return r
	}
	if r.kubelet.panic == nil && c.equal(r.kubelet.value, r.ours.value) {
		r.exception = same
		return r
	}
	r.exception = c.explain(r)
	return r
}

// explain returns the index of the exception that explains a difference, or the constant different if none does.
func (c Comparison[In, Out]) explain(r result[In, Out]) int {
	want := r.kubelet.value
	for i, e := range c.Exceptions {
		if e.Want == nil || !e.When(r.in) {
			continue
		}
		if want = e.Want(r.in, want); c.equal(want, r.ours.value) {
			return i // the last one, if the difference needs several
		}
	}
	// An exception without Want accepts every result.
	for i, e := range c.Exceptions {
		if e.Want == nil && e.When(r.in) {
			return i
		}
	}
	return different
}

// changed reports whether nodeagent has modified its input, which is not allowed.
func (r result[In, Out]) changed(generate func(*Choices) In, data []byte) bool {
	// to save time, one of eight inputs is checked
	if len(data) == 0 || data[len(data)-1]%8 != 0 {
		return false
	}
	return !reflect.DeepEqual(r.in, generate(NewChoices(data)))
}

// equal reports whether the two results are equal, according to c.Same if it is set.
func (c Comparison[In, Out]) equal(kubelet, ours Out) bool {
	if c.Same != nil {
		return c.Same(kubelet, ours)
	}
	return reflect.DeepEqual(kubelet, ours)
}

// call calls f(in). The outcome contains the result of f, or its panic.
func call[In, Out any](f func(In) Out, in In) (o outcome[Out]) {
	defer func() { o.panic = recover() }()
	o.value = f(in)
	return o
}

// shrink removes parts of data or replaces them by zeros, as long as the results differ.
func (c Comparison[In, Out]) shrink(data []byte) []byte {
	fails := func(data []byte) bool { return c.compare(data).exception == different }
	for again := true; again; {
		again = false
		for size := len(data); size > 0; size /= 2 {
			for at := 0; at+size <= len(data); at += size {
				for _, try := range [][]byte{cut(data, at, size), blank(data, at, size)} {
					if try != nil && fails(try) {
						data, again = try, true
						break
					}
				}
			}
		}
	}
	return data
}

// cut returns a copy of data without the bytes data[at:at+size].
func cut(data []byte, at, size int) []byte {
	return append(append([]byte{}, data[:at]...), data[at+size:]...)
}

// blank returns a copy of data in which the bytes data[at:at+size] are zero. It returns nil if all these bytes are zero
// already.
func blank(data []byte, at, size int) []byte {
	out := append([]byte{}, data...)
	clear(out[at : at+size])
	if string(out) == string(data) {
		return nil
	}
	return out
}

// report returns a text with the input that data encodes, and the difference between the two results for it.
func (c Comparison[In, Out]) report(data []byte) string {
	r := c.compare(data)
	if r.ours.panic == nil && r.changed(c.Make, append(data, 0)) {
		return fmt.Sprintf("nodeagent has written to its input %q\n%s", data, show(c.Make(NewChoices(data))))
	}
	kubelet := call(c.Kubelet, c.Make(NewChoices(data))) // run again, because exceptions may have written to the result
	diff := cmp.Diff(strings.Split(kubelet.String(), "\n"), strings.Split(r.ours.String(), "\n"))
	return fmt.Sprintf("the kubelet (-) and nodeagent (+) differ on %q\n%s\n%s", data, show(r.in), diff)
}

// String returns the result as YAML, or the value of the panic.
func (o outcome[Out]) String() string {
	if o.panic != nil {
		return fmt.Sprint("panic: ", o.panic)
	}
	return show(o.value)
}

// show returns v as YAML. If v cannot be encoded, it returns v in the syntax of Go.
func show(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}
