// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// errBusy is why a request is refused that too many others of its client, or of all, are ahead of.
var errBusy = errors.New("too many reviews are under way")

// clientOf returns the client that a request counts for: the address that it comes from, of IPv6 the network, as one host may
// have all addresses of that.
func clientOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64)
	return network.String()
}

// room bounds how many requests wait for reviews, in all and of each client. A client has reserved requests even when the
// room is full.
type room struct {
	most, each, reserved int

	mu      sync.Mutex // guards what follows
	all     int
	clients map[string]int
}

// enter counts a request of a client, and reports whether there is room for it. If so, leave has to follow.
func (r *room) enter(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.clients[client]
	if n >= r.each || r.all >= r.most && n >= r.reserved {
		return false
	}
	if r.clients == nil {
		r.clients = make(map[string]int)
	}
	r.all++
	r.clients[client] = n + 1
	return true
}

func (r *room) leave(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.clients[client]--; r.clients[client] == 0 {
		delete(r.clients, client)
	}
}

// slots bounds how many reviews are under way, in all and for each client. Clients whose reviews wait take turns.
type slots struct {
	most, each int

	mu      sync.Mutex // guards what follows
	running int
	clients map[string]*line
	turns   list.List // of *line, those with waiting reviews; the next turn is in front
}

// line is the reviews of one client.
type line struct {
	client  string
	running int
	waiting []chan struct{} // closed when the review may begin
	turn    *list.Element   // nil: waiting is empty
}

// acquire waits for a slot until ctx ends. Without an error, release has to follow.
func (s *slots) acquire(ctx context.Context, client string) error {
	granted := make(chan struct{})
	s.mu.Lock()
	l := s.clients[client]
	if l == nil {
		if s.clients == nil {
			s.clients = make(map[string]*line)
		}
		l = &line{client: client}
		s.clients[client] = l
	}
	l.waiting = append(l.waiting, granted)
	if l.turn == nil {
		l.turn = s.turns.PushBack(l)
	}
	s.grant()
	s.mu.Unlock()
	select {
	case <-granted:
		if !isOver(ctx) {
			return nil
		}
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(l.waiting, granted); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		s.tidy(l)
	} else {
		s.end(l)
	}
	return fmt.Errorf("%w: %w", errBusy, cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// isOver reports whether ctx has ended, or ends at this instant: its timer may fire after that of the review that has released the slot.
func isOver(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// release gives a slot back.
func (s *slots) release(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.clients[client])
}

func (s *slots) end(l *line) {
	s.running--
	l.running--
	s.tidy(l)
	s.grant()
}

// grant gives free slots to waiting reviews, one of each client in turn.
func (s *slots) grant() {
	for skipped := 0; s.running < s.most && skipped < s.turns.Len(); {
		l, _ := s.turns.Front().Value.(*line)
		s.turns.MoveToBack(l.turn)
		if l.running >= s.each {
			skipped++
			continue
		}
		skipped = 0
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
		s.running++
		l.running++
		s.tidy(l)
	}
}

// tidy takes a line without waiting reviews out of the turns, and forgets one without any.
func (s *slots) tidy(l *line) {
	if len(l.waiting) > 0 {
		return
	}
	if l.turn != nil {
		s.turns.Remove(l.turn)
		l.turn = nil
	}
	if l.running == 0 {
		delete(s.clients, l.client)
	}
}
