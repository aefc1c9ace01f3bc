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

// Name of the header with the type of a SPDY stream, and the stream types.
const (
	streamType = "streamType"

	typeError, typeData                         = "error", "data"
	typeStdin, typeStdout, typeStderr, typeSize = "stdin", "stdout", "stderr", "resize"
)

// spdyClient collects the SPDY streams that the client of an exec or attach session opens.
type spdyClient struct {
	client   *client
	protocol string
	tty      bool
	ready    chan struct{}

	wanted map[string]bool

	mu       sync.Mutex // guards the fields below
	streams  map[string]*spdy.Stream
	complete bool // ready is closed
}

// writeSPDYUpgrade sends the response 101, which switches the connection to SPDY with this stream protocol.
func (c *conn) writeSPDYUpgrade(protocol string) error {
	_, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgrade.SPDY31+"\r\n"+
		upgrade.HeaderProtocol+": "+protocol+"\r\n\r\n")
	return err
}

func (s *session) openSPDY(w http.ResponseWriter, opts cri.StreamOptions, protocol string) (*client, bool, error) {
	conn, err := s.hijackConn(w)
	if err != nil {
		return nil, false, err
	}
	if err := conn.writeSPDYUpgrade(protocol); err != nil {
		return nil, true, err
	}
	c := &spdyClient{
		client: &client{conn: conn, closed: make(chan struct{})}, protocol: protocol, tty: opts.TTY, ready: make(chan struct{}),
		wanted: requiredStreams(opts, protocol), streams: map[string]*spdy.Stream{},
	}
	mux, err := spdy.New(conn.newReader(), conn, spdy.Options{Accept: c.acceptStream, Buffer: streamBuffer, MaxStreams: 8})
	if err != nil {
		return nil, true, err
	}
	c.client.sendStatus = func(result status) {
		c.closeStreams(result)
		_ = mux.GoAway()
	}
	c.client.tasks.Go(func() {
		defer close(c.client.closed)
		_ = mux.Serve()
	})
	err = c.client.awaitStreams(s, c.ready)
	if err == nil {
		err = c.awaitReplies(s.ctx)
	}
	if err != nil {
		result := errorStatus(err)
		c.client.closeWithStatus(&result)
		return nil, true, err
	}
	c.attachStreams(opts)
	return c.client, true, nil
}

// requiredStreams returns the streams that the client must open, by stream type.
func requiredStreams(opts cri.StreamOptions, protocol string) map[string]bool {
	return map[string]bool{
		typeError: true, typeStdin: opts.Stdin, typeStdout: opts.Stdout, typeStderr: opts.Stderr,
		typeSize: opts.TTY && (protocol == upgrade.ChannelV4 || protocol == upgrade.ChannelV3),
	}
}

func (c *spdyClient) acceptStream(stream *spdy.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := stream.Header().Get(streamType)
	if spare := kind == typeStderr && c.tty; c.streams[kind] != nil || !c.wanted[kind] && !spare {
		return fmt.Errorf("stream type %q is not expected", kind)
	}
	c.streams[kind] = stream
	if !c.complete {
		if c.complete = c.hasAllStreams(); c.complete {
			close(c.ready)
		}
	}
	return nil
}

// awaitReplies waits until a SYN_REPLY was sent for every stream that the client opened.
func (c *spdyClient) awaitReplies(ctx context.Context) error {
	c.mu.Lock()
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	// some clients read output only after all replies, so earlier output could block these
	for _, stream := range streams {
		if err := stream.AwaitReply(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hasAllStreams reports whether the client has opened all streams that it must open. The caller holds mu.
func (c *spdyClient) hasAllStreams() bool {
	for kind, wanted := range c.wanted {
		if wanted && c.streams[kind] == nil && (kind != typeSize || c.streams[typeStderr] == nil) { // a client without a terminal opens stderr, not resize
			return false
		}
	}
	return true
}

// attachStreams sets Stdin, Stdout, Stderr and Resize of the session to the SPDY streams that the client has opened.
func (c *spdyClient) attachStreams(opts cri.StreamOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.TTY = opts.TTY
	if stream := c.streams[typeStdin]; stream != nil {
		c.client.Stdin = stream
		c.client.inputs = append(c.client.inputs, stream.Input())
	}
	if stream := c.streams[typeStdout]; stream != nil {
		c.client.Stdout = stream
	}
	if stream := c.streams[typeStderr]; stream != nil && !c.tty {
		c.client.Stderr = stream
	}
	if stream := c.streams[typeSize]; stream != nil {
		c.client.startResize(stream, stream.Input())
	}
	if c.protocol == upgrade.ChannelV1 { // its clients expect this
		_ = c.streams[typeError].Reset()
		if stream := c.streams[typeStdin]; stream != nil {
			_ = stream.CloseWrite()
		}
	}
}

// startResize starts a goroutine that decodes terminal sizes from r, which reads from the input pipe.
func (c *client) startResize(r io.Reader, input *pipe.Pipe) {
	to := make(chan cri.TerminalSize, 1)
	c.Resize, c.inputs = to, append(c.inputs, input) // abortInputs stops the goroutine
	c.tasks.Go(func() { decodeSizes(r, to) })
}

// closeStreams sends the status on the error stream and closes all streams. It closes the error stream last, because some
// clients depend on this order.
func (c *spdyClient) closeStreams(result status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stream := c.streams[typeError]; stream != nil && c.protocol != upgrade.ChannelV1 {
		if b := result.encode(c.protocol == upgrade.ChannelV4); len(b) > 0 {
			_, _ = stream.Write(b)
		}
	}
	for _, kind := range []string{typeStdout, typeStderr, typeStdin, typeSize, typeError} {
		if stream := c.streams[kind]; stream != nil {
			_ = stream.Close()
		}
	}
}
