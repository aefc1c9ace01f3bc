// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"maps"
	"net/http"
	"time"
)

// Defaults of Options.
const (
	DefaultTokenTTL time.Duration = defaultTokenTTL
	DefaultAllowTTL time.Duration = defaultAllowTTL
	DefaultDenyTTL  time.Duration = defaultDenyTTL
	DefaultTimeout  time.Duration = defaultTimeout
)

// ErrUnauthenticated is the error of a request without credentials.
var ErrUnauthenticated = errUnauthenticated

// Authenticate returns the user of a request.
func (a *Access) Authenticate(r *http.Request) (User, error) { return a.authenticate(r) }

// Clients returns the clients that an Access counts requests of.
func (a *Access) Clients() []string {
	var all []string
	r := a.reviews
	for _, room := range []*waitLimit{&r.waiting, &r.waitingUsers} {
		room.mu.Lock()
		for client := range maps.Keys(room.clients) {
			all = append(all, client)
		}
		room.mu.Unlock()
	}
	for _, s := range []*slots{&r.slots, &r.userSlots} {
		s.mu.Lock()
		for client := range maps.Keys(s.clients) {
			all = append(all, client)
		}
		s.mu.Unlock()
	}
	return all
}
