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

func (m Match) matchesRequest(r Request) bool {
	match := func(want, is string) bool { return want == "" || want == is || want == "-" && is == "" }
	return match(m.Verb, r.Verb) && match(m.Resource, r.Resource) && match(m.Subresource, r.Subresource) &&
		match(m.Namespace, r.Namespace) && match(m.Name, r.Name) && match(m.UserAgent, r.UserAgent)
}

// Fault describes how requests fail. If several faults match a request, the one that was injected last applies.
type Fault struct {
	Match
	Times int           // number of requests that it affects; zero: all, until it is removed
	Skip  int           // number of requests that pass before the first affected one
	Delay time.Duration // pause before the request is handled
	Hang  bool          // no response until the client gives up
	Code  int           // HTTP status of an error response, without an effect of the request; zero: no error
	// RetryAfter is the Retry-After header of the error; zero: none.
	RetryAfter   time.Duration
	Err          error // API error to return, instead of one made from Code
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

// Inject makes matching requests fail, until remove is called or, with Fault.Times, for that number of requests.
func (s *Server) Inject(f Fault) (remove func()) {
	added := &activeFault{Fault: f}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.active = append(s.faults.active, added)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		s.faults.active = slices.DeleteFunc(s.faults.active, func(a *activeFault) bool { return a == added })
	}
}

// Fail makes requests of a verb and a resource fail with an HTTP status until remove is called. An empty verb or resource matches
// all.
func (s *Server) Fail(verb, resource string, code int) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Code: code})
}

// Delay makes requests of a verb and a resource wait for d until remove is called. An empty verb or resource matches all.
func (s *Server) Delay(verb, resource string, d time.Duration) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Delay: d})
}

// Hang leaves requests of a verb and a resource without a response until remove is called. Requests that hang then keep hanging.
// An empty verb or resource matches all.
func (s *Server) Hang(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Hang: true})
}

// Disconnect closes the connection of requests of a verb and a resource instead of a response, until remove is called. An empty
// verb or resource matches all. See DisconnectAll for open connections.
func (s *Server) Disconnect(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Disconnect: true})
}

// DisconnectAll closes the connections of all requests in flight, including watches.
func (s *Server) DisconnectAll() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	close(s.faults.disconnect)
	s.faults.disconnect = make(chan struct{})
}

// SetUnavailable makes the server close all connections and refuse new ones, or accept them again. Its objects stay.
func (s *Server) SetUnavailable(away bool) {
	s.faults.mu.Lock()
	s.faults.unavailable = away
	s.faults.mu.Unlock()
	if away {
		s.DisconnectAll()
	}
}

func (f *faults) isUnavailable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unavailable
}

// disconnectSignal returns a channel that is closed when all connections are closed.
func (f *faults) disconnectSignal() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disconnect
}

// findFault returns the fault that applies to request c, or nil. It counts the matching faults.
func (f *faults) findFault(c *call) *Fault {
	c.server.log.mu.Lock()
	r := c.server.log.requests[max(c.index-c.server.log.offset, 0)]
	c.server.log.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unavailable {
		return &Fault{Disconnect: true}
	}
	for _, a := range slices.Backward(f.active) {
		if !a.matchesRequest(r) {
			continue
		}
		if a.seen++; a.seen <= a.Skip || a.Times > 0 && a.seen > a.Skip+a.Times {
			continue
		}
		return &a.Fault
	}
	return nil
}

// applyFault delays, hangs or fails the request as f describes. It reports whether the request must still be handled.
func (c *call) applyFault(f *Fault) bool {
	disconnect := c.server.faults.disconnectSignal()
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
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
	case f.Hang:
		select {
		case <-disconnect:
		case <-c.clientContext().Done():
		}
		panic(http.ErrAbortHandler)
	case f.Disconnect:
		panic(http.ErrAbortHandler)
	case f.Err != nil:
		c.writeError(f.Err)
		return false
	case f.Code != 0:
		c.writeError(c.faultError(f))
		return false
	}
	c.disconnectAfter = f.DisconnectAfter
	return true
}

// faultError returns the API error that f describes.
func (c *call) faultError(f *Fault) error {
	err := apierrors.NewGenericServerResponse(f.Code, c.verb, c.kind.groupResource(), c.name, "injected", int(f.RetryAfter/time.Second), true)
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.RetryAfterSeconds = int32(f.RetryAfter / time.Second)
	return err
}
