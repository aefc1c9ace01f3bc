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

// Match selects requests. A field that is empty matches all; "-" matches what is empty in the request.
type Match struct {
	Verb, Resource, Subresource, Namespace, Name, UserAgent string
}

func (m Match) matchesRequest(r Request) bool {
	match := func(want, is string) bool { return want == "" || want == is || want == "-" && is == "" }
	return match(m.Verb, r.Verb) && match(m.Resource, r.Resource) && match(m.Subresource, r.Subresource) &&
		match(m.Namespace, r.Namespace) && match(m.Name, r.Name) && match(m.UserAgent, r.UserAgent)
}

// Fault is what goes wrong with requests. Where several match, the one that was injected last counts.
type Fault struct {
	Match
	Times int           // requests that it is for; zero: all, until it is removed
	Skip  int           // requests that are spared before the first
	Delay time.Duration // the request waits before anything else is done
	Hang  bool          // there is no answer until the client gives up
	Code  int           // an error of this HTTP status is answered, and nothing is done; zero: no error
	// RetryAfter is sent with an error; zero: none is.
	RetryAfter   time.Duration
	Err          error // of the API, answered instead of one that is made of Code
	LoseResponse bool  // the request is done, and the connection is closed instead of an answer
	Disconnect   bool  // the connection is closed, and nothing is done
	// DisconnectAfter ends a watch after this time, in the middle of the stream; zero: it stays.
	DisconnectAfter time.Duration
}

type activeFault struct {
	Fault
	seen int // requests that matched
}

// faults are those that are injected.
type faults struct {
	mu          sync.Mutex // guards what follows
	active      []*activeFault
	disconnect  chan struct{} // closed to cut all connections
	unavailable bool          // nobody listens
}

// Inject has requests fail in a way, until remove is called or, with Fault.Times, as often as that says.
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

// Fail has requests of a verb and a resource, empty for all, answered with an HTTP status until remove is called.
func (s *Server) Fail(verb, resource string, code int) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Code: code})
}

// Delay has requests of a verb and a resource, empty for all, wait before they are done until remove is called.
func (s *Server) Delay(verb, resource string, d time.Duration) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Delay: d})
}

// Hang has requests of a verb and a resource, empty for all, get no answer until remove is called. Those that hang by then go
// on hanging.
func (s *Server) Hang(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Hang: true})
}

// Disconnect has the connection closed instead of an answer for requests of a verb and a resource, empty for all, until remove is
// called. See CutAll for those that are open.
func (s *Server) Disconnect(verb, resource string) (remove func()) {
	return s.Inject(Fault{Match: Match{Verb: verb, Resource: resource}, Disconnect: true})
}

// DisconnectAll closes the connections of all requests that are under way, watches above all.
func (s *Server) DisconnectAll() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	close(s.faults.disconnect)
	s.faults.disconnect = make(chan struct{})
}

// SetUnavailable has the server go away, which closes all connections and refuses new ones, or come back. Its objects stay.
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

// cuts returns what is closed when all connections are cut.
func (f *faults) disconnectSignal() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disconnect
}

// find returns the fault of a request, or nil.
func (f *faults) findFault(c *call) *Fault {
	c.log.mu.Lock()
	r := c.log.requests[max(c.index-c.log.offset, 0)]
	c.log.mu.Unlock()
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

// suffer does what a fault says, and reports whether the request is to be done after it.
func (c *call) applyFault(f *Fault) bool {
	disconnect := c.faults.disconnectSignal()
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

// errorOf returns the error of the API that a fault is for.
func (c *call) faultError(f *Fault) error {
	err := apierrors.NewGenericServerResponse(f.Code, c.verb, c.kind.groupResource(), c.name, "injected", int(f.RetryAfter/time.Second), true)
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.RetryAfterSeconds = int32(f.RetryAfter / time.Second)
	return err
}
