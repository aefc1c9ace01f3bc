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

// errBusy is the cause of a response with status 429: too many requests of one client, or of all clients, wait for reviews.
var errBusy = errors.New("too many reviews are under way")

// clientKey returns the key under which the requests of a client are counted: its IPv4 address or IPv6 /64 network.
func clientKey(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64)
	return network.String()
}

// waitLimit limits the number of requests that wait for a review, in total and per client. If the total is reached, each client
// may still have as many waiting requests as the field reserved says.
type waitLimit struct {
	maxTotal, maxPerClient, reserved int

	mu      sync.Mutex // guards the fields below
	total   int
	clients map[string]int
}

// startWait counts a waiting request of client, for which the caller must call endWait. It returns false if a limit is reached.
func (r *waitLimit) startWait(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.clients[client]
	if n >= r.maxPerClient || r.total >= r.maxTotal && n >= r.reserved {
		return false
	}
	if r.clients == nil {
		r.clients = make(map[string]int)
	}
	r.total++
	r.clients[client] = n + 1
	return true
}

func (r *waitLimit) endWait(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	if r.clients[client]--; r.clients[client] == 0 {
		delete(r.clients, client)
	}
}

// slots limits the number of concurrent reviews, in total and per client. If reviews of several clients wait, the clients take
// turns.
type slots struct {
	maxTotal, maxPerClient int

	mu        sync.Mutex // guards the fields below
	running   int
	clients   map[string]*clientQueue
	turnOrder list.List // of *clientQueue with waiting reviews; the next turn is first
}

// clientQueue has the number of running reviews of one client, and its waiting reviews.
type clientQueue struct {
	client  string
	running int
	waiting []chan struct{} // each closed when its review may start
	turn    *list.Element   // element in slots.turnOrder; nil: waiting is empty
}

// acquireSlot waits until client may send a review. If ctx ends before, it returns an error. After a nil error, the caller
// must call releaseSlot.
func (s *slots) acquireSlot(ctx context.Context, client string) error {
	granted := make(chan struct{})
	s.mu.Lock()
	l := s.clients[client]
	if l == nil {
		if s.clients == nil {
			s.clients = make(map[string]*clientQueue)
		}
		l = &clientQueue{client: client}
		s.clients[client] = l
	}
	l.waiting = append(l.waiting, granted)
	if l.turn == nil {
		l.turn = s.turnOrder.PushBack(l)
	}
	s.grantSlots()
	s.mu.Unlock()
	select {
	case <-granted:
		if !hasEnded(ctx) {
			return nil
		}
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(l.waiting, granted); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		s.removeIdleClient(l)
	} else {
		s.endReview(l)
	}
	return fmt.Errorf("%w: %w", errBusy, cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// hasEnded reports whether ctx has ended or its deadline has passed. The deadline is checked because the timer of ctx may be
// late.
func hasEnded(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// releaseSlot ends a review of client, and lets a waiting review start.
func (s *slots) releaseSlot(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endReview(s.clients[client])
}

func (s *slots) endReview(queue *clientQueue) {
	s.running--
	queue.running--
	s.removeIdleClient(queue)
	s.grantSlots()
}

// grantSlots starts waiting reviews while the limits permit it. The clients take turns, with one review each.
func (s *slots) grantSlots() {
	for skipped := 0; s.running < s.maxTotal && skipped < s.turnOrder.Len(); {
		l, _ := s.turnOrder.Front().Value.(*clientQueue)
		s.turnOrder.MoveToBack(l.turn)
		if l.running >= s.maxPerClient {
			skipped++
			continue
		}
		skipped = 0
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
		s.running++
		l.running++
		s.removeIdleClient(l)
	}
}

// removeIdleClient ends the turns of a client that has no waiting review. It forgets the client if none of its reviews is
// running.
func (s *slots) removeIdleClient(queue *clientQueue) {
	if len(queue.waiting) > 0 {
		return
	}
	if queue.turn != nil {
		s.turnOrder.Remove(queue.turn)
		queue.turn = nil
	}
	if queue.running == 0 {
		delete(s.clients, queue.client)
	}
}
