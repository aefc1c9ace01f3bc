// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Relay is a network between clients and a server that can be slow, and can lose everything without either side being told. The systems
// of both still answer each other: what needs a machine that does not, such as keep-alive, is not modelled.
type Relay struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends with Close, or before
	end      context.CancelFunc
	tasks    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	delay   time.Duration
	dropped bool
}

// StartRelay listens on the loopback for clients of a server, which target names by host and port. Close, or the end of ctx, ends it.
func StartRelay(ctx context.Context, target string) (*Relay, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: l, target: target}
	r.ctx, r.end = context.WithCancel(ctx)
	r.tasks.Go(r.acceptConns)
	return r, nil
}

// Address is where clients connect to.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Slow passes on one byte of the server in so much time. What it has not passed on it has not read.
func (r *Relay) SetDelay(every time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = every
}

// Vanish passes nothing on any more, also no end, and reads nothing but what it was waiting for.
func (r *Relay) DropPackets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = true
}

// Close closes all connections.
func (r *Relay) Close() {
	r.end()
	_ = r.listener.Close()
	r.tasks.Wait()
}

func (r *Relay) readState() (every time.Duration, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay, r.dropped
}

func (r *Relay) acceptConns() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.tasks.Go(func() { r.relayConn(client) })
	}
}

func (r *Relay) relayConn(client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(r.ctx, "tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(r.ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	if c, ok := server.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(4 << 10) // so that a server that is not read notices it soon
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { r.copyBytes(client, server, true) })
	tasks.Go(func() { r.copyBytes(server, client, false) })
	tasks.Wait()
}

// copy passes on what comes, and its end.
func (r *Relay) copyBytes(to, from net.Conn, slow bool) {
	buf := make([]byte, 4<<10)
	for {
		every, _ := r.readState()
		b := buf
		if slow && every > 0 {
			b = buf[:1]
			t := time.NewTimer(every)
			select {
			case <-t.C:
			case <-r.ctx.Done():
				t.Stop()
			}
		}
		n, err := from.Read(b)
		if _, lost := r.readState(); lost {
			<-r.ctx.Done()
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			_ = to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}
