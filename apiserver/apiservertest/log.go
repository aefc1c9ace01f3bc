// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"slices"
	"sync"
	"time"
)

// Request is a received request and the status code of its response.
type Request struct {
	At          time.Time
	Verb        string // API verb, such as get, list or patch; empty: unsupported method
	Resource    string // such as pods
	Subresource string // such as status
	Namespace   string // empty: all namespaces, or a resource without namespace
	Name        string // empty: all objects, or a generated name
	Query       string // raw query
	ContentType string // media type of Body
	Body        []byte // as received
	UserAgent   string
	Remote      string // address of the client; "transport" without sockets
	Code        int    // HTTP status of the response; zero: no response yet
}

// requestLog holds the received requests and counts open watches.
type requestLog struct {
	mu       sync.Mutex // guards the fields below
	requests []Request
	limit    int // maximum length of requests
	bytes    int // total length of the bodies of requests
	offset   int // number of deleted requests
	watches  map[string]int
}

// Default and limit of the request log.
const (
	defaultRequestLog = 10_000
	maxLoggedBytes    = 64 << 20 // of bodies
)

// loggedRequest returns the entry for this request in the request log. The response code is not set yet.
func (c *call) loggedRequest() Request {
	return Request{
		At: time.Now(), Verb: c.verb, Resource: c.kind.resource, Subresource: c.subresource, Namespace: c.namespace, Name: c.name,
		Query: c.r.URL.RawQuery, ContentType: c.r.Header.Get("Content-Type"), Body: c.body,
		UserAgent: c.r.UserAgent(), Remote: c.r.RemoteAddr,
	}
}

// addRequest appends a request to the log, drops the oldest requests above the limits, and returns the index of the entry.
func (l *requestLog) addRequest(request Request) (index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, request)
	l.bytes += len(request.Body)
	for len(l.requests) > 1 && (len(l.requests) > l.limit || l.bytes > maxLoggedBytes) {
		l.bytes -= len(l.requests[0].Body)
		l.requests[0] = Request{}
		l.requests = l.requests[1:]
		l.offset++
	}
	return l.offset + len(l.requests) - 1
}

func (l *requestLog) setCode(index, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := index - l.offset; i >= 0 && i < len(l.requests) {
		l.requests[i].Code = code
	}
}

// countWatches adds n to the number of open watches of a resource. For closed watches n is negative.
func (l *requestLog) countWatches(resource string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watches == nil {
		l.watches = map[string]int{}
	}
	l.watches[resource] += n
}

// Requests returns the logged requests that match, in the order of their arrival. The log has the last Options.RequestLog requests.
func (s *Server) Requests(match Match) []Request {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log.requests), func(r Request) bool { return !match.matchesRequest(r) })
}

// CountRequests returns the number of logged requests that match.
func (s *Server) CountRequests(match Match) int { return len(s.Requests(match)) }

// ForgetRequests deletes the log of requests.
func (s *Server) ForgetRequests() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.offset += len(s.log.requests)
	s.log.requests, s.log.bytes = nil, 0
}

// OpenWatches returns the number of open watches of a resource.
func (s *Server) OpenWatches(resource string) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.watches[resource]
}
