// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Relay is a TCP proxy that simulates a slow network, and one that drops all data without closing the connections. The kernels of
// both sides still acknowledge data, so a crashed machine is not simulated.
type Relay struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends with Close or the parent context
	end      context.CancelFunc
	tasks    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	delay   time.Duration
	dropped bool
}

// StartRelay listens on a loopback address and forwards connections to target, an address host:port. The relay stops when
// ctx ends or [Relay.Close] is called.
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

// Address returns the host:port of the relay.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// SetDelay slows down the data from the server: the relay then reads and forwards only one byte per delay.
func (r *Relay) SetDelay(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// DropPackets makes the relay discard all further data and hide that a connection was closed. The connections stay open, as
// after a network failure.
func (r *Relay) DropPackets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = true
}

// Close stops the relay, closes all connections and waits for its goroutines.
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
		_ = c.SetReadBuffer(4 << 10) // a blocked server notices it soon
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { r.copyBytes(client, server, true) })
	tasks.Go(func() { r.copyBytes(server, client, false) })
	tasks.Wait()
}

// copyBytes copies data until src ends, and closes the write side of dst, with the delay of [Relay.SetDelay] if slow is
// true.
func (r *Relay) copyBytes(dst, src net.Conn, slow bool) {
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
		n, err := src.Read(b)
		if _, lost := r.readState(); lost {
			<-r.ctx.Done()
			return
		}
		if n > 0 {
			if _, err := dst.Write(b[:n]); err != nil {
				_ = src.Close()
				return
			}
		}
		if err != nil {
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		}
	}
}
