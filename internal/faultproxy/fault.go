// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Fault is what goes wrong with requests. Where several match, the one that was injected last counts.
type Fault struct {
	Match
	// Delay is how long a request waits before anything else is done; zero: it does not.
	Delay time.Duration
	// Hang: there is no answer until the client gives up.
	Hang bool
	// Cut: the connection of the request is closed instead of an answer.
	Cut bool
	// Code is the HTTP status of an error that is answered in place of the API server's; zero: there is none.
	Code int
	// RetryAfter is sent with the error, in whole seconds; zero: it is not.
	RetryAfter time.Duration
}

// Inject has requests fail in a way until remove is called. Those that hang or wait by then go on.
func (p *Proxy) Inject(f Fault) (remove func()) {
	added := &f
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, added)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, func(f *Fault) bool { return f == added })
	}
}

// find returns the fault of a request, or nil, and counts the request.
func (p *Proxy) find(r Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[Request{Verb: r.Verb, Resource: r.Resource, Subresource: r.Subresource}]++
	for _, f := range slices.Backward(p.faults) {
		if f.Matches(r) {
			return f
		}
	}
	return nil
}

// suffer does what a fault says, and reports whether the request is to go on after it.
func (f *Fault) suffer(ctx context.Context, w http.ResponseWriter) bool {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	switch {
	case f.Hang:
		<-ctx.Done() // which ends with the connection, at the latest
		return false
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Code != 0:
		f.answer(w)
		return false
	}
	return true
}

// answer writes the Status that an API server would.
func (f *Fault) answer(w http.ResponseWriter) {
	status := map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "injected by a test", "code": f.Code,
		"reason": reason(f.Code),
	}
	if f.RetryAfter > 0 {
		seconds := int(f.RetryAfter / time.Second)
		status["details"] = map[string]any{"retryAfterSeconds": seconds}
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(status) // who has gone away misses it
}

// reason is the reason that Kubernetes has for an HTTP status.
func reason(code int) string {
	switch code {
	case http.StatusConflict:
		return "Conflict"
	case http.StatusTooManyRequests:
		return "TooManyRequests"
	case http.StatusInternalServerError:
		return "InternalError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailable"
	case http.StatusForbidden:
		return "Forbidden"
	default:
		return "Unknown"
	}
}
