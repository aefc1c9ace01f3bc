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

// Options configure a [Server]. Either Streamer or Runner is required.
type Options struct {
	// Streamer is a runtime that serves sessions at a URL, to which the Server proxies them. If it is nil, the
	// Server uses Runner.
	Streamer cri.Streamer
	// Runner is a runtime that runs sessions itself; the Server implements the protocols. It is used if Streamer is nil.
	Runner cri.SessionRunner
	// AllowAnyHost allows runtime URLs that are not on the loopback of this machine, as the kubelet does.
	AllowAnyHost bool
	// TLS is the configuration for https URLs of the runtime. Nil means the system's certificate authorities.
	TLS *tls.Config

	// PodOf returns the UID of the pod that a container or sandbox ID belongs to, or "" if unknown. MaxPerPod and
	// [Server.CloseSessions] use it. If it is nil, the Server asks Pods; without Pods, no session counts for a pod.
	PodOf func(id string) string
	// Pods is the list of pods by which the Server closes the sessions of stopped containers and sandboxes. If it is nil, a
	// session ends when the runtime ends it.
	Pods Pods

	MaxSessions       int // concurrent sessions of the node; zero means 1,000, negative no limit, as in the kubelet
	MaxPerPod         int // concurrent sessions of a pod; zero means 250. The last quarter of MaxSessions is reserved for pods with less than a hundredth of it
	MaxForwardedConns int // concurrent connections of a port-forward session with Runner; zero means 250

	CreationTimeout time.Duration // limit for the client to open its streams, and for the runtime to respond; zero means 30 s
	IdleTimeout     time.Duration // a session without transferred bytes is closed after this time; zero means 4 h, negative never
	StallTimeout    time.Duration // a session whose peer accepts no pending byte is closed after this time; zero means 4 h, negative never
	// BlockedForwardTimeout is the time after which a forwarded connection whose reader accepts no data is reset, if it blocks
	// other connections of its session. Zero means 10 s.
	BlockedForwardTimeout time.Duration
	// Linger is how long, after the end of its session, a client may take to read the remaining output and to close. Zero means
	// 30 s.
	Linger time.Duration

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Hooks are called by a [Server], for example to record metrics. Each hook may be nil. It is called from the goroutine of the
// request, with no lock held.
type Hooks struct {
	// SessionStarted is called for each admitted session.
	SessionStarted func(Session)
	// SessionFinished is called when a session has ended and its resources are released. The error is the reason of an early end,
	// or the error sent to the client. It is nil after a normal end.
	SessionFinished func(Session, error)
	// SessionRefused is called for each session that exceeds a limit or arrives during the shutdown.
	SessionRefused func(Session, error)
	// WebSocket is called for each WebSocket request that the Server translates or unwraps for its runtime
	// (kubelet_websocket_streaming_requests_total).
	WebSocket func(Kind)
}

func (o Options) withDefaults() (Options, error) {
	if o.Streamer == nil && o.Runner == nil {
		return o, errors.New("streaming: Options need a Streamer or a Runner")
	}
	for name, d := range map[string]time.Duration{"CreationTimeout": o.CreationTimeout, "BlockedForwardTimeout": o.BlockedForwardTimeout, "Linger": o.Linger} {
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
		return o, fmt.Errorf("streaming: Options.MaxForwardedConns %d must not be negative", o.MaxForwardedConns)
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
