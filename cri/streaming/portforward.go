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

// Names of the headers of SPDY streams in a port-forward session.
const (
	headerPort = "port"
	headerPair = "requestID"
)

// ServePortForward forwards connections of the HTTP client to these ports of a sandbox, see [ParsePorts]. The caller has
// authorized the request and checked that the sandbox exists. It blocks until the session has ended, and sends all errors to
// the client.
func (s *Server) ServePortForward(w http.ResponseWriter, r *http.Request, sandboxID string, ports []int32) {
	if refusal := upgrade.Check(r); refusal != nil {
		writeRefusal(w, refusal)
		return
	}
	session, err := s.startSession(r.Context(), PortForward, s.newTarget(sandboxID))
	if err != nil {
		writeRefusal(w, err)
		return
	}
	if upgrade.IsTunnel(r) {
		s.reportWebSocket(PortForward)
	}
	locate := func(ctx context.Context) (string, error) { return s.opts.Streamer.PortForward(ctx, sandboxID, ports) }
	switch {
	case s.opts.Streamer == nil:
		session.finishSession(session.servePortForward(w, r, ports))
	case upgrade.IsTunnel(r):
		session.serveTunnelSession(w, r, locate)
	default:
		session.proxyUpgrade(w, r, locate)
	}
}

// servePortForward runs a port-forward session with Options.Runner, over the protocol that the client requests.
func (s *session) servePortForward(w http.ResponseWriter, r *http.Request, ports []int32) error {
	switch {
	case upgrade.IsTunnel(r):
		c, carried, err := s.upgradeTunnel(w, r, upgrade.PortForward)
		if err != nil {
			return err
		}
		return s.forwardSPDY(c, bufio.NewReaderSize(carried, 16<<10), carried, carried.closeWrite)
	case upgrade.IsWebSocket(r):
		return s.forwardWebSocket(w, r, ports)
	}
	protocol, refusal := upgrade.NegotiateSPDY(r, []string{upgrade.PortForward})
	if refusal != nil {
		writeRefusal(w, refusal)
		return refusal
	}
	c, err := s.hijackConn(w)
	if err != nil {
		writeRefusal(w, err)
		return err
	}
	if err := c.writeSPDYUpgrade(protocol); err != nil {
		return err
	}
	return s.forwardSPDY(c, c.newReader(), c, func() {})
}

// forwarder has the forwarded connections of one port-forward session over SPDY.
type forwarder struct {
	session *session
	tasks   sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	pairs map[string]*streamPair
}

// streamPair has the data stream and the error stream of one forwarded connection. The client opens them one after the other: a
// nil stream is not open yet.
type streamPair struct {
	port         int32
	data, errors *spdy.Stream
	expiry       *time.Timer
}

// forwardSPDY serves a port-forward session over SPDY until it ends. Then it calls finish and closes the connection.
func (s *session) forwardSPDY(conn *conn, r *bufio.Reader, w io.Writer, finish func()) error {
	f := &forwarder{session: s, pairs: map[string]*streamPair{}}
	mux, err := spdy.New(r, w, spdy.Options{
		Accept: f.acceptStream, Buffer: 4 * streamBuffer, UnreadTimeout: s.server.opts.BlockedForwardTimeout, MaxStreams: 2 * s.server.opts.MaxForwardedConns,
	})
	if err != nil {
		return err
	}
	clientClosed := make(chan struct{})
	s.tasks.Go(func() {
		defer close(clientClosed)
		_ = mux.Serve()
	})
	select {
	case <-clientClosed:
		s.cancel(errClientGone)
	case <-s.ctx.Done():
	}
	f.closePairs()
	waitFor(&f.tasks, runnerTimeout)
	_ = mux.GoAway()
	finish()
	conn.closeGracefully(clientClosed)
	return nil
}

// waitFor waits until all tasks have returned or the time limit is reached.
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

// acceptStream adds a stream that the client opens to its pair: a forwarded connection has a stream for data and one for
// errors.
func (f *forwarder) acceptStream(stream *spdy.Stream) error {
	kind, h := stream.Header().Get(streamType), stream.Header().Get(headerPort)
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
	id := stream.Header().Get(headerPair)
	if id == "" { // old clients open the error stream directly before the data stream
		n := stream.ID()
		if kind == typeData {
			n -= 2
		}
		id = strconv.FormatUint(uint64(n), 10)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pairs == nil {
		return errSessionOver
	}
	p := f.pairs[id]
	if p == nil {
		p = &streamPair{port: port}
		p.expiry = time.AfterFunc(f.session.server.opts.CreationTimeout, func() { f.expirePair(id, p) })
		f.pairs[id] = p
	}
	return f.addStream(id, p, kind, stream)
}

// addStream adds a data or error stream to its pair, and starts forwarding if the pair is complete. The caller holds mu.
func (f *forwarder) addStream(pairID string, pair *streamPair, kind string, stream *spdy.Stream) error {
	stream.RelatedStreams = 1
	slot := &pair.data
	if kind == typeError {
		slot = &pair.errors
	}
	if *slot != nil {
		return fmt.Errorf("%s stream already assigned", kind)
	}
	*slot = stream
	if kind == typeData {
		pair.port, _ = parsePort(stream.Header().Get(headerPort), "")
	}
	if pair.data == nil || pair.errors == nil {
		return nil
	}
	pair.expiry.Stop()
	delete(f.pairs, pairID)
	f.tasks.Go(func() { f.runPair(pair) })
	return nil
}

// expirePair is called Options.CreationTimeout after the first stream of pair was opened. If the second stream is missing,
// it removes the pair and reports the timeout to the client.
func (f *forwarder) expirePair(id string, pair *streamPair) {
	f.mu.Lock()
	pending := f.pairs[id] == pair
	if pending {
		delete(f.pairs, id)
	}
	f.mu.Unlock()
	if !pending {
		return
	}
	if pair.errors != nil {
		_, _ = fmt.Fprintf(pair.errors, "request %s timed out waiting for streams", id)
		_ = pair.errors.Close()
	}
	if pair.data != nil {
		_ = pair.data.Reset()
	}
}

// closePairs removes all pairs with only one stream. Afterwards f refuses new streams.
func (f *forwarder) closePairs() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		p.expiry.Stop()
	}
	f.pairs = nil
}

// runPair forwards data between the data stream of pair and a port of the pod. It sends an error on the error stream, and
// finally closes both streams.
func (f *forwarder) runPair(pair *streamPair) {
	err := f.session.runForward(pair.port, pair.data)
	if err != nil {
		_, _ = io.WriteString(pair.errors, err.Error())
		_ = pair.data.Reset()
	}
	_ = pair.data.Close()
	_ = pair.errors.Close()
}

// runForward forwards data between a stream and a port of the sandbox. A disconnect of the client is no error.
func (s *session) runForward(port int32, stream io.ReadWriteCloser) error {
	err := s.server.opts.Runner.RunPortForward(s.ctx, s.Target.ID, port, stream)
	if why := s.endReason(); why != nil {
		err = why
	}
	if err == nil || errors.Is(err, errClientGone) {
		return nil
	}
	return fmt.Errorf("error forwarding port %d to pod %s, uid %s: %w", port, s.Target.ID, s.Target.PodUID, err)
}
