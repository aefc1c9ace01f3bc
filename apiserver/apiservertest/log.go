// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"slices"
	"sync"
	"time"
)

// Request is one request as it came, and the code that it was answered with.
type Request struct {
	At          time.Time
	Verb        string // of the API, as get, list or patch; empty: a method that the server does not have
	Resource    string // as pods
	Subresource string // as status
	Namespace   string // empty: all, or the resource has none
	Name        string // empty: all, or one that is made
	Query       string // as it was sent
	ContentType string // of Body
	Body        []byte // as it was sent
	UserAgent   string
	Remote      string // address of the client; of the transport without sockets the same for all
	Code        int    // HTTP status of the answer; zero: there was none so far
}

// log has all requests.
type requestLog struct {
	mu       sync.Mutex // guards what follows
	requests []Request
	offset   int // requests that were forgotten
	watches  map[string]int
}

// add notes a request and returns its place.
func (l *requestLog) addRequest(c *call) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, Request{
		At: time.Now(), Verb: c.verb, Resource: c.kind.resource, Subresource: c.subresource, Namespace: c.namespace, Name: c.name,
		Query: c.r.URL.RawQuery, ContentType: c.r.Header.Get("Content-Type"), Body: c.body,
		UserAgent: c.r.UserAgent(), Remote: c.r.RemoteAddr,
	})
	return l.offset + len(l.requests) - 1
}

func (l *requestLog) setCode(index, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := index - l.offset; i >= 0 && i < len(l.requests) {
		l.requests[i].Code = code
	}
}

// watching counts the watches of a resource that are open.
func (l *requestLog) countWatches(resource string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watches == nil {
		l.watches = map[string]int{}
	}
	l.watches[resource] += n
}

// Requests returns all requests that match, in the order in which they came.
func (s *Server) Requests(m Match) []Request {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log.requests), func(r Request) bool { return !m.matchesRequest(r) })
}

// CountRequests returns how many requests match.
func (s *Server) CountRequests(m Match) int { return len(s.Requests(m)) }

// ForgetRequests empties the log.
func (s *Server) ForgetRequests() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.offset += len(s.log.requests)
	s.log.requests = nil
}

// OpenWatches returns how many watches of a resource are open.
func (s *Server) OpenWatches(resource string) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.watches[resource]
}
