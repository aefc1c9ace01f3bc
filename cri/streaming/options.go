// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Options configure a [Server]. One of Streamer and Runner is needed.
type Options struct {
	// Streamer is a runtime that serves sessions at a URL, to which they are proxied. Nil: Runner is used.
	Streamer cri.Streamer
	// Runner is a runtime that runs sessions itself, for which this package speaks the protocols. It is used where
	// Streamer is nil.
	Runner cri.SessionRunner
	// AnyHost allows URLs that are not on the loopback of this machine, as the kubelet does.
	AllowAnyHost bool
	// TLS is for URLs of https. Nil: the certificates that the system trusts.
	TLS *tls.Config

	// PodOf returns the UID of the pod that a container or sandbox belongs to, for MaxPerPod and [Server.End]; empty where it
	// does not know. Nil: no session counts for a pod.
	PodOf func(id string) string
	// Pods end the sessions of containers and sandboxes that stop, and answer PodOf where that is nil. Nil: a session ends when the runtime
	// ends it.
	Pods Pods

	MaxSessions       int // sessions at once, of the node; zero means 1,000, negative as many as come, as in the kubelet
	MaxPerPod         int // the same of one pod; zero means 250; the last quarter of MaxStreams is for pods with less than a hundredth of it
	MaxForwardedConns int // connections at once in a session that forwards ports with Runner; zero means 250

	CreationTimeout time.Duration // how long a client may take to open its streams, and the runtime to answer; zero means 30 s
	IdleTimeout     time.Duration // how long a session lives in which no byte moves; zero means 4 h, negative for ever
	StallTimeout    time.Duration // how long a peer may take no byte that waits for it; zero means 4 h, negative for ever
	// Unread is how long a forwarded connection that takes nothing may hold up others of its session before it is reset.
	// Zero means 10 s.
	BlockedForwardTimeout time.Duration
	// Linger is how long a client has, once its session has ended, to read what is left and to close. Zero means 30 s.
	Linger time.Duration

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Hooks are called as sessions come and go, mostly to feed metrics. Any may be nil. They are called from the goroutine of
// the request, with no lock held.
type Hooks struct {
	// Began is called with each session that is admitted.
	SessionStarted func(Session)
	// Ended is called when a session is over and nothing of it is left. The error says why it ended before its time, or
	// what its client was told; nil: it went as it should.
	SessionFinished func(Session, error)
	// Refused is called with each session that is over a limit, or comes during the shutdown.
	SessionRefused func(Session, error)
	// WebSocket is called with each request that the node translates or tunnels instead of its runtime
	// (kubelet_websocket_streaming_requests_total).
	WebSocket func(Kind)
}

func (o Options) withDefaults() (Options, error) {
	if o.Streamer == nil && o.Runner == nil {
		return o, errors.New("streaming: Options need a Streamer or a Runner")
	}
	for name, d := range map[string]time.Duration{"Create": o.CreationTimeout, "Unread": o.BlockedForwardTimeout, "Linger": o.Linger} {
		if d < 0 {
			return o, fmt.Errorf("streaming: Options.%s %v must not be negative", name, d)
		}
	}
	defaultTo(&o.MaxSessions, 1000)
	defaultTo(&o.MaxPerPod, 250)
	defaultTo(&o.MaxForwardedConns, 250)
	defaultTo(&o.CreationTimeout, 30*time.Second)
	defaultTo(&o.IdleTimeout, 4*time.Hour)
	defaultTo(&o.StallTimeout, 4*time.Hour)
	defaultTo(&o.BlockedForwardTimeout, 10*time.Second)
	defaultTo(&o.Linger, 30*time.Second)
	if o.MaxForwardedConns < 0 {
		return o, fmt.Errorf("streaming: Options.MaxForwards %d must not be negative", o.MaxForwardedConns)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func defaultTo[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
