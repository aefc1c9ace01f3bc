// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// maxCalls is the number of calls that a runtime records.
const maxCalls = 10_000

// Call is one recorded call to a [Runtime].
type Call struct {
	Time  time.Time     // when the runtime received it
	Op    string        // CRI name of the call, such as "StartContainer"; or "List" or "ListPod"
	ID    string        // ID of the object, including an object that the call created
	Name  string        // name of the object: namespace/pod, namespace/pod/container, or an image; empty if unknown
	Grace time.Duration // of StopContainer only
	Err   error         // error that the call returned; nil while it has not returned
}

// String describes the call in one line: its CRI name, the name or ID of its object, the grace period and the error.
func (c Call) String() string {
	words := []string{c.Op}
	if object := c.objectName(); object != "" {
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

// objectName returns c.Name, or c.ID if the object has no name.
func (c Call) objectName() string {
	if c.Name != "" {
		return c.Name
	}
	return c.ID
}

// Calls returns the recorded calls, oldest first. If ops is not empty, it returns only the calls with these CRI names. The
// runtime keeps the last 10,000 calls.
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

// recordCall records a call with the current time and the name of its object. It returns the record, which the caller later
// passes to recordResult.
func (r *Runtime) recordCall(call Call) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.Time = time.Now()
	if sb := r.sandboxByID(call.ID); sb != nil {
		call.Name = podName(sb.Pod)
	} else if ctr := r.containerByID(call.ID); ctr != nil {
		call.Name = podName(ctr.pod) + "/" + ctr.Name
	}
	if len(r.calls) == maxCalls {
		r.calls = r.calls[1:]
	}
	r.calls = append(r.calls, &call)
	return &call
}

// recordResult stores the error of a finished call in its record, and wraps it in a [cri.Error]. A nil error stays nil.
func (r *Runtime) recordResult(call *Call, err *error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *err == nil {
		return
	}
	id := call.ID
	if id == "" {
		id = call.Name
	}
	call.Err = *err
	*err = &cri.Error{Op: call.Op, ID: id, Err: *err}
}
