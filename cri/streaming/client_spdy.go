// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// The header that says what a stream is for, and its values.
const (
	streamType = "streamType"

	typeError, typeData                         = "error", "data"
	typeStdin, typeStdout, typeStderr, typeSize = "stdin", "stdout", "stderr", "resize"
)

// spdyClient collects the streams that a client opens.
type spdyClient struct {
	client   *client
	protocol string
	tty      bool
	ready    chan struct{}

	wanted map[string]bool

	mu       sync.Mutex // guards what follows
	streams  map[string]*spdy.Stream
	complete bool // ready is closed
}

// switchTo answers with the upgrade to SPDY.
func (c *conn) switchTo(protocol string) error {
	_, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgrade.SPDY31+"\r\n"+
		upgrade.HeaderProtocol+": "+protocol+"\r\n\r\n")
	return err
}

func (s *session) openSPDY(w http.ResponseWriter, o cri.StreamOptions, protocol string) (*client, bool, error) {
	conn, err := s.hijack(w)
	if err != nil {
		return nil, false, err
	}
	if err := conn.switchTo(protocol); err != nil {
		return nil, true, err
	}
	c := &spdyClient{
		client: &client{conn: conn, gone: make(chan struct{})}, protocol: protocol, tty: o.TTY, ready: make(chan struct{}),
		wanted: wantedStreams(o, protocol), streams: map[string]*spdy.Stream{},
	}
	mux, err := spdy.New(conn.reader(), conn, spdy.Options{Accept: c.accept, Buffer: buffer, MaxStreams: 8})
	if err != nil {
		return nil, true, err
	}
	c.client.report = func(how status) {
		c.finish(how)
		_ = mux.GoAway()
	}
	c.client.tasks.Go(func() {
		defer close(c.client.gone)
		_ = mux.Serve()
	})
	err = c.client.await(s, c.ready)
	if err == nil {
		err = c.answered(s.ctx)
	}
	if err != nil {
		how := failed(err)
		c.client.close(&how)
		return nil, true, err
	}
	c.use(o)
	return c.client, true, nil
}

// wantedStreams returns the streams that a client has to open.
func wantedStreams(o cri.StreamOptions, protocol string) map[string]bool {
	return map[string]bool{
		typeError: true, typeStdin: o.Stdin, typeStdout: o.Stdout, typeStderr: o.Stderr,
		typeSize: o.TTY && (protocol == upgrade.ChannelV4 || protocol == upgrade.ChannelV3),
	}
}

func (c *spdyClient) accept(one *spdy.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := one.Header().Get(streamType)
	if spare := kind == typeStderr && c.tty; c.streams[kind] != nil || !c.wanted[kind] && !spare {
		return fmt.Errorf("stream type %q is not expected", kind)
	}
	c.streams[kind] = one
	if !c.complete {
		if c.complete = c.enough(); c.complete {
			close(c.ready)
		}
	}
	return nil
}

// answered waits until the client has been told of each stream: what is written to one before would hold up the answer to another, for a
// client that reads when it has all of them.
func (c *spdyClient) answered(ctx context.Context) error {
	c.mu.Lock()
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	for _, one := range streams {
		if err := one.Accepted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// enough reports whether no stream is missing. Who attaches without a terminal to a container that has one opens a stream for stderr,
// on which nothing will come, in place of the one for sizes. The caller holds mu.
func (c *spdyClient) enough() bool {
	for kind, wanted := range c.wanted {
		if wanted && c.streams[kind] == nil && (kind != typeSize || c.streams[typeStderr] == nil) {
			return false
		}
	}
	return true
}

// use puts the streams into the session. Those that are wanted are there; one for stderr that is not may still come.
func (c *spdyClient) use(o cri.StreamOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.TTY = o.TTY
	if one := c.streams[typeStdin]; one != nil {
		c.client.Stdin = one
		c.client.inputs = append(c.client.inputs, one.Input())
	}
	if one := c.streams[typeStdout]; one != nil {
		c.client.Stdout = one
	}
	if one := c.streams[typeStderr]; one != nil && !c.tty {
		c.client.Stderr = one
	}
	if one := c.streams[typeSize]; one != nil {
		c.client.resize(one, one.Input())
	}
	if c.protocol == upgrade.ChannelV1 { // whose clients are used to that
		_ = c.streams[typeError].Reset()
		if one := c.streams[typeStdin]; one != nil {
			_ = one.CloseWrite()
		}
	}
}

// resize passes on the sizes of the terminal.
func (c *client) resize(r io.Reader, in *pipe.Pipe) {
	to := make(chan cri.TerminalSize, 1)
	c.Resize, c.inputs = to, append(c.inputs, in)
	c.tasks.Go(func() { sizes(r, to) })
}

// finish writes the status and closes the streams, in the order in which clients wait for them.
func (c *spdyClient) finish(how status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.streams[typeError]; one != nil && c.protocol != upgrade.ChannelV1 {
		if b := how.text(c.protocol == upgrade.ChannelV4); len(b) > 0 {
			_, _ = one.Write(b)
		}
	}
	for _, kind := range []string{typeStdout, typeStderr, typeStdin, typeSize, typeError} {
		if one := c.streams[kind]; one != nil {
			_ = one.Close()
		}
	}
}
