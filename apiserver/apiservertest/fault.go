// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Match selects requests by their fields. An empty field matches all requests; "-" matches requests in which the field is empty.
type Match struct {
	Verb, Resource, Subresource, Namespace, Name, UserAgent string
}

func (m Match) matchesRequest(request Request) bool {
	match := func(want, is string) bool { return want == "" || want == is || want == "-" && is == "" }
	return match(m.Verb, request.Verb) && match(m.Resource, request.Resource) && match(m.Subresource, request.Subresource) &&
		match(m.Namespace, request.Namespace) && match(m.Name, request.Name) && match(m.UserAgent, request.UserAgent)
}

// Fault describes how requests fail. If several faults match a request, the one that was injected last applies.
type Fault struct {
	Match
	Times int // number of matching requests that fail; zero: all requests until the fault is removed
	Skip  int // number of matching requests that do not fail before the first that does

	Delay time.Duration // pause before the request is handled
	Hang  bool          // no response until the client gives up
	Code  int           // HTTP status of an error response, without an effect of the request; zero: no error
	// RetryAfter is the Retry-After header of the error; zero: none.
	RetryAfter   time.Duration
	Err          error // API error of the response, in place of Code
	LoseResponse bool  // the request takes effect, and the connection is closed without a response
	Disconnect   bool  // the connection is closed, and the request has no effect
	// DisconnectAfter closes the connection of a watch after this time; zero: never.
	DisconnectAfter time.Duration
}

type activeFault struct {
	Fault
	seen int // requests that matched
}

// faults holds the injected faults and the availability of the server.
type faults struct {
	mu          sync.Mutex // guards the fields below
	active      []*activeFault
	disconnect  chan struct{} // closed to disconnect all requests, and replaced
	unavailable bool          // new connections are refused
}

// Inject makes the requests that match the fault fail, until remove is called. If fault.Times is not zero, only that number
// of requests fails.
func (s *Server) Inject(fault Fault) (remove func()) {
	added := &activeFault{Fault: fault}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.active = append(s.faults.active, added)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		s.faults.active = slices.DeleteFunc(s.faults.active, func(a *activeFault) bool { return a == added })
	}
}

// Fail makes requests with this verb and resource fail with the HTTP status code, until remove is called. An empty verb or
// resource matches all requests.
func (s *Server) Fail(verb, resource string, code int) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Code: code})
}

// Delay makes requests with this verb and resource wait for the duration d before the server handles them, until remove is
// called. An empty verb or resource matches all requests.
func (s *Server) Delay(verb, resource string, d time.Duration) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Delay: d})
}

// Hang makes the server send no response to new requests with this verb and resource, until remove is called. A hanging
// request never gets a response, even after remove. An empty verb or resource matches all requests.
func (s *Server) Hang(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Hang: true})
}

// Disconnect makes the server close the connection of each new request with this verb and resource, until remove is called.
// The client gets no response. An empty verb or resource matches all requests. For requests in flight see
// [Server.DisconnectAll].
func (s *Server) Disconnect(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Disconnect: true})
}

// DisconnectAll closes the connections of all requests in flight, including watches. New requests are served as usual.
func (s *Server) DisconnectAll() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	close(s.faults.disconnect)
	s.faults.disconnect = make(chan struct{})
}

// SetUnavailable makes the server close all connections and refuse new connections if unavailable is true. If it is false,
// the server accepts connections again. The stored objects remain.
func (s *Server) SetUnavailable(unavailable bool) {
	s.faults.mu.Lock()
	s.faults.unavailable = unavailable
	s.faults.mu.Unlock()
	if unavailable {
		s.DisconnectAll()
	}
}

func (f *faults) isUnavailable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unavailable
}

// disconnectSignal returns a channel that the next call of DisconnectAll closes.
func (f *faults) disconnectSignal() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disconnect
}

// findFault returns the injected fault that applies to the request, or nil, and counts the request for Skip and Times.
func (f *faults) findFault(request *call) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unavailable {
		return &Fault{Disconnect: true}
	}
	for _, a := range slices.Backward(f.active) {
		if !a.matchesRequest(request.request) {
			continue
		}
		if a.seen++; a.seen <= a.Skip || a.Times > 0 && a.seen > a.Skip+a.Times {
			continue
		}
		return &a.Fault
	}
	return nil
}

// applyFault delays, drops or fails the request. It returns true if the caller must still handle the request.
func (c *call) applyFault(fault *Fault) (handle bool) {
	disconnect := c.server.faults.disconnectSignal()
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-disconnect:
			panic(http.ErrAbortHandler)
		case <-c.clientContext().Done():
			return false
		}
	}
	switch {
	case fault.Hang:
		select {
		case <-disconnect:
		case <-c.clientContext().Done():
		}
		panic(http.ErrAbortHandler)
	case fault.Disconnect:
		panic(http.ErrAbortHandler)
	case fault.Err != nil:
		c.writeError(fault.Err)
		return false
	case fault.Code != 0:
		c.writeError(c.faultError(fault))
		return false
	}
	c.disconnectAfter = fault.DisconnectAfter
	return true
}

// faultError returns an API error with the HTTP status and the Retry-After delay of the fault.
func (c *call) faultError(fault *Fault) error {
	err := apierrors.NewGenericServerResponse(fault.Code, c.verb, c.kind.groupResource(), c.name, "injected", int(fault.RetryAfter/time.Second), true)
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.RetryAfterSeconds = int32(fault.RetryAfter / time.Second)
	return err
}
