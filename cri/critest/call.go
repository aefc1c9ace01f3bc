// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// maxCalls is how many calls a runtime remembers.
const maxCalls = 10_000

// Call is one call that the runtime received.
type Call struct {
	Time  time.Time     // when it came in
	Op    string        // the CRI's name of the call, such as "StartContainer"; "List" and "ListPod" have none there
	ID    string        // of the object, also of the one that the call made
	Name  string        // of the object: namespace/pod, namespace/pod/container, or an image; empty when unknown
	Grace time.Duration // of StopContainer
	Err   error         // what the call returned; also nil as long as it has not returned
}

// String returns the call as one line of a script: its name, the object's, the grace and the error.
func (c Call) String() string {
	words := []string{c.Op}
	if object := c.object(); object != "" {
		words = append(words, object)
	}
	if c.Grace != 0 {
		words = append(words, "grace="+c.Grace.String())
	}
	if c.Err != nil {
		words = append(words, "error="+c.Err.Error())
	}
	return strings.Join(words, " ")
}

func (c Call) object() string {
	if c.Name != "" {
		return c.Name
	}
	return c.ID
}

// Calls returns the calls that came in, oldest first: those of the given operations, or all. The runtime remembers
// the last 10,000.
func (r *Runtime) Calls(ops ...string) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]Call, 0, len(r.calls))
	for _, c := range r.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// begin takes note of a call that comes in.
func (r *Runtime) begin(c Call) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Time = time.Now()
	if sb := r.sandbox(c.ID); sb != nil {
		c.Name = podName(sb.Pod)
	} else if ctr := r.container(c.ID); ctr != nil {
		c.Name = podName(ctr.pod) + "/" + ctr.Name
	}
	if len(r.calls) == maxCalls {
		r.calls = r.calls[1:]
	}
	r.calls = append(r.calls, &c)
	return &c
}

// end takes note of how the call went, and makes its error one of package cri.
func (r *Runtime) end(c *Call, err *error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *err == nil {
		return
	}
	id := c.ID
	if id == "" {
		id = c.Name
	}
	c.Err = *err
	*err = &cri.Error{Op: c.Op, ID: id, Err: *err}
}
