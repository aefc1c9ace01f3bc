// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// Headers of the streams of a port-forward.
const (
	headerPort = "port"
	headerPair = "requestID"
)

// ServePortForward forwards ports of a sandbox, as a request asks that was authorized and whose sandbox was found. The ports
// are those of [ParsePorts]. It answers whatever comes of it, and returns when the session is over.
func (s *Server) ServePortForward(w http.ResponseWriter, r *http.Request, sandboxID string, ports []int32) {
	if no := upgrade.Check(r); no != nil {
		answer(w, no)
		return
	}
	session, err := s.begin(r.Context(), PortForward, s.target(sandboxID))
	if err != nil {
		answer(w, err)
		return
	}
	if upgrade.IsTunnel(r) {
		s.count(PortForward)
	}
	locate := func(ctx context.Context) (string, error) { return s.opts.Streamer.PortForward(ctx, sandboxID, ports) }
	switch {
	case s.opts.Streamer == nil:
		session.finish(session.forward(w, r, ports))
	case upgrade.IsTunnel(r):
		session.tunnel(w, r, locate)
	default:
		session.proxy(w, r, locate)
	}
}

// forward speaks the protocols of a port-forward.
func (s *session) forward(w http.ResponseWriter, r *http.Request, ports []int32) error {
	switch {
	case upgrade.IsTunnel(r):
		c, carried, err := s.upgradeTunnel(w, r, upgrade.PortForward)
		if err != nil {
			return err
		}
		return s.forwardSPDY(c, bufio.NewReaderSize(carried, 16<<10), carried, carried.finish)
	case upgrade.IsWebSocket(r):
		return s.forwardWebSocket(w, r, ports)
	}
	protocol, no := upgrade.NegotiateSPDY(r, []string{upgrade.PortForward})
	if no != nil {
		answer(w, no)
		return no
	}
	c, err := s.hijack(w)
	if err != nil {
		answer(w, err)
		return err
	}
	if err := c.switchTo(protocol); err != nil {
		return err
	}
	return s.forwardSPDY(c, c.reader(), c, func() {})
}

// forwarder forwards the connections of one session.
type forwarder struct {
	session *session
	tasks   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	pairs map[string]*pair
}

// pair is the two streams of a connection, of which one may be missing yet.
type pair struct {
	port        int32
	data, fault *spdy.Stream
	expiry      *time.Timer
}

// forwardSPDY serves a client by SPDY until it has gone.
func (s *session) forwardSPDY(c *conn, r *bufio.Reader, w io.Writer, finish func()) error {
	f := &forwarder{session: s, pairs: map[string]*pair{}}
	mux, err := spdy.New(r, w, spdy.Options{
		Accept: f.accept, Buffer: 4 * buffer, Stall: s.server.opts.Unread, MaxStreams: 2 * s.server.opts.MaxForwards,
	})
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	s.tasks.Go(func() {
		defer close(gone)
		_ = mux.Serve()
	})
	select {
	case <-gone:
		s.cancel(errClientGone)
	case <-s.ctx.Done():
	}
	f.end()
	waitFor(&f.tasks, late)
	_ = mux.GoAway()
	finish()
	c.linger(gone)
	return nil
}

// waitFor waits for goroutines, but not for ever.
func waitFor(tasks *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		tasks.Wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// accept takes a stream, and starts the connection when it has both.
func (f *forwarder) accept(one *spdy.Stream) error {
	kind, h := one.Header().Get(streamType), one.Header().Get(headerPort)
	if h == "" {
		return fmt.Errorf("%q header is required", headerPort)
	}
	port, err := parsePort(h, h)
	if err != nil {
		return err
	}
	if kind != typeError && kind != typeData {
		return fmt.Errorf("invalid stream type %q", kind)
	}
	id := one.Header().Get(headerPair)
	if id == "" { // an old client, whose error stream is the one before
		n := one.ID()
		if kind == typeData {
			n -= 2
		}
		id = strconv.FormatUint(uint64(n), 10)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pairs == nil {
		return errOver
	}
	p := f.pairs[id]
	if p == nil {
		p = &pair{port: port}
		p.expiry = time.AfterFunc(f.session.server.opts.Create, func() { f.expire(id, p) })
		f.pairs[id] = p
	}
	return f.add(id, p, kind, one)
}

// add puts a stream into its pair. The caller holds mu.
func (f *forwarder) add(id string, p *pair, kind string, one *spdy.Stream) error {
	one.Companions = 1
	slot := &p.data
	if kind == typeError {
		slot = &p.fault
	}
	if *slot != nil {
		return fmt.Errorf("%s stream already assigned", kind)
	}
	*slot = one
	if kind == typeData {
		p.port, _ = parsePort(one.Header().Get(headerPort), "")
	}
	if p.data == nil || p.fault == nil {
		return nil
	}
	p.expiry.Stop()
	delete(f.pairs, id)
	f.tasks.Go(func() { f.run(p) })
	return nil
}

// expire gives up a pair whose second stream has not come.
func (f *forwarder) expire(id string, p *pair) {
	f.mu.Lock()
	mine := f.pairs[id] == p
	if mine {
		delete(f.pairs, id)
	}
	f.mu.Unlock()
	if !mine {
		return
	}
	if p.fault != nil {
		_, _ = fmt.Fprintf(p.fault, "request %s timed out waiting for streams", id)
		_ = p.fault.Close()
	}
	if p.data != nil {
		_ = p.data.Reset()
	}
}

// end takes no more streams, and gives up what is not complete.
func (f *forwarder) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		p.expiry.Stop()
	}
	f.pairs = nil
}

// run forwards one connection.
func (f *forwarder) run(p *pair) {
	err := f.session.forwardPort(p.port, p.data)
	if err != nil {
		_, _ = io.WriteString(p.fault, err.Error())
		_ = p.data.Reset()
	}
	_ = p.data.Close()
	_ = p.fault.Close()
}

// forwardPort runs one connection. The error is what its client is told.
func (s *session) forwardPort(port int32, stream io.ReadWriteCloser) error {
	err := s.server.opts.Runner.RunPortForward(s.ctx, s.Target.ID, port, stream)
	if why := s.why(); why != nil {
		err = why
	}
	if err == nil || errors.Is(err, errClientGone) {
		return nil
	}
	return fmt.Errorf("error forwarding port %d to pod %s, uid %s: %w", port, s.Target.ID, s.Target.PodUID, err)
}
