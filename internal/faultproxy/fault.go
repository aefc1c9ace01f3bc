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

// Fault makes the requests that Match selects fail or wait. If several faults match a request, the last injected one applies.
type Fault struct {
	Match
	// Delay is the time for which a request waits first. Zero: it does not wait.
	Delay time.Duration
	// Hang keeps the request without a response until the client cancels it.
	Hang bool
	// Cut closes the connection of the request instead of a response.
	Cut bool
	// Code is the HTTP status of an error response that is sent instead of forwarding the request. Zero: the request is
	// forwarded.
	Code int
	// RetryAfter is the Retry-After header of the error response, in whole seconds. Zero: there is none.
	RetryAfter time.Duration
}

// Inject applies fault to each request that matches it, until the caller calls remove. Requests that fault already delays
// or hangs are not released by remove.
func (p *Proxy) Inject(fault Fault) (remove func()) {
	added := &fault
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, added)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, func(fault *Fault) bool { return fault == added })
	}
}

// takeFault counts the request, and returns the fault to apply to it: the last injected fault that matches. It returns nil
// if no fault matches.
func (p *Proxy) takeFault(request Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[Request{Verb: request.Verb, Resource: request.Resource, Subresource: request.Subresource}]++
	for _, f := range slices.Backward(p.faults) {
		if f.Matches(request) {
			return f
		}
	}
	return nil
}

// apply delays, hangs, cuts off or refuses a request as f defines. forward is true if the proxy must then forward it.
func (f *Fault) apply(ctx context.Context, w http.ResponseWriter) (forward bool) {
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
		<-ctx.Done() // at the latest, the end of the connection cancels ctx
		return false
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Code != 0:
		f.writeStatus(w)
		return false
	}
	return true
}

// writeStatus writes an error response with the HTTP status f.Code. Its body is a Kubernetes Status object.
func (f *Fault) writeStatus(w http.ResponseWriter) {
	status := map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "injected by a test", "code": f.Code,
		"reason": statusReason(f.Code),
	}
	if f.RetryAfter > 0 {
		seconds := int(f.RetryAfter / time.Second)
		status["details"] = map[string]any{"retryAfterSeconds": seconds}
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(status) // the client may have closed the connection
}

// statusReason returns the reason of a Kubernetes Status with this HTTP status code, such as NotFound.
func statusReason(code int) string {
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
