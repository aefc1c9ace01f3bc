// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package spdy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	frames "github.com/moby/spdystream/spdy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
)

// newPair returns both ends of a SPDY connection.
func newPair(t testing.TB, o spdy.Options) (client, server *spdy.Conn) {
	t.Helper()
	a, b := net.Pipe()
	client, err := spdy.New(bufio.NewReader(a), a, spdy.Options{IsClient: true})
	require.NoError(t, err)
	server, err = spdy.New(bufio.NewReader(b), b, o)
	require.NoError(t, err)
	for _, c := range []*spdy.Conn{client, server} {
		go func() { _ = c.Serve() }()
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return client, server
}

func TestStreams(t *testing.T) {
	accepted := make(chan *spdy.Stream, 10)
	client, _ := newPair(t, spdy.Options{Accept: func(s *spdy.Stream) error {
		if s.Header().Get("streamType") == "bad" {
			return errors.New("no")
		}
		accepted <- s
		return nil
	}})
	for i := range 3 {
		s, err := client.Open(http.Header{"streamType": {"data"}, "port": {"80"}})
		require.NoError(t, err)
		require.NoError(t, s.AwaitReply(t.Context()))
		got := <-accepted
		assert.Equal(t, uint32(2*i+1), got.ID())
		assert.Equal(t, "80", got.Header().Get("port"))
		go func() {
			_, _ = io.Copy(got, got)
			_ = got.Close()
		}()
		_, err = s.Write(bytes.Repeat([]byte("x"), 10000))
		require.NoError(t, err)
		require.NoError(t, s.CloseWrite())
		all, err := io.ReadAll(s)
		require.NoError(t, err)
		assert.Len(t, all, 10000)
	}
	bad, err := client.Open(http.Header{"streamType": {"bad"}})
	require.NoError(t, err)
	require.ErrorIs(t, bad.AwaitReply(t.Context()), spdy.ErrReset)
}

func TestTooManyStreams(t *testing.T) {
	client, _ := newPair(t, spdy.Options{MaxStreams: 1, Accept: func(*spdy.Stream) error { return nil }})
	first, err := client.Open(nil)
	require.NoError(t, err)
	require.NoError(t, first.AwaitReply(t.Context()))
	second, err := client.Open(nil)
	require.NoError(t, err)
	require.ErrorIs(t, second.AwaitReply(t.Context()), spdy.ErrReset)
}

// The framer of spdystream and this package read each other's frames.
func TestFramesOfSpdystream(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	require.NoError(t, a.SetDeadline(time.Now().Add(time.Minute)))
	server, err := spdy.New(bufio.NewReader(b), b, spdy.Options{Accept: func(s *spdy.Stream) error {
		go func() { _, _ = io.Copy(s, s) }()
		return nil
	}})
	require.NoError(t, err)
	go func() { _ = server.Serve() }()
	f, err := frames.NewFramer(a, a)
	require.NoError(t, err)
	for id := frames.StreamId(1); id < 20; id += 2 {
		require.NoError(t, f.WriteFrame(&frames.SynStreamFrame{StreamId: id, Headers: http.Header{"Streamtype": {"data"}}}))
		got, err := f.ReadFrame()
		require.NoError(t, err)
		require.IsType(t, &frames.SynReplyFrame{}, got)
		require.NoError(t, f.WriteFrame(&frames.DataFrame{StreamId: id, Data: []byte("echo")}))
		got, err = f.ReadFrame()
		require.NoError(t, err)
		require.Equal(t, &frames.DataFrame{StreamId: id, Data: []byte("echo")}, got)
	}
	require.NoError(t, f.WriteFrame(&frames.PingFrame{Id: 3}))
	got, err := f.ReadFrame()
	require.NoError(t, err)
	assert.Equal(t, uint32(3), got.(*frames.PingFrame).Id)

	client, err := spdy.New(nil, b, spdy.Options{IsClient: true})
	require.NoError(t, err)
	f, err = frames.NewFramer(io.Discard, a)
	require.NoError(t, err)
	for range 3 {
		go func() { _, _ = client.Open(http.Header{"streamType": {"error"}, "port": {"8080"}}) }()
		got, err := f.ReadFrame()
		require.NoError(t, err)
		assert.Equal(t, http.Header{"Streamtype": {"error"}, "Port": {"8080"}}, got.(*frames.SynStreamFrame).Headers)
	}
}

// serveBytes serves the bytes wire as a server or a client that reads all its streams, and returns the error of Serve.
func serveBytes(t testing.TB, wire []byte, client bool) error {
	var c *spdy.Conn
	c, err := spdy.New(bufio.NewReader(bytes.NewReader(wire)), io.Discard, spdy.Options{
		IsClient: client, MaxStreams: 4, Buffer: 1 << 10, UnreadTimeout: time.Millisecond,
		Accept: func(s *spdy.Stream) error {
			if s.ID() == 5 {
				return errors.New("refused")
			}
			go func() { _, _ = io.Copy(io.Discard, s) }()
			return nil
		},
	})
	require.NoError(t, err)
	if client {
		for range 3 {
			s, err := c.Open(http.Header{"streamType": {"data"}})
			require.NoError(t, err)
			go func() { _, _ = io.Copy(io.Discard, s) }()
		}
	}
	return c.Serve()
}

func TestInvalidFrames(t *testing.T) {
	var wire bytes.Buffer
	f, err := frames.NewFramer(&wire, &wire)
	require.NoError(t, err)
	open := func(id frames.StreamId, h http.Header) []byte {
		wire.Reset()
		require.NoError(t, f.WriteFrame(&frames.SynStreamFrame{StreamId: id, Headers: h}))
		return bytes.Clone(wire.Bytes())
	}
	first := open(3, nil)
	tests := map[string][]byte{
		"even":      append(bytes.Clone(first), open(4, nil)...),
		"again":     append(bytes.Clone(first), open(3, nil)...),
		"backwards": append(bytes.Clone(first), open(1, nil)...),
		"short":     []byte("\x80\x03\x00\x01\x00\x00\x00\x02ab"),
		"unknown":   []byte("\x80\x03\x00\x63\x00\x00\x00\x00"),
		"long":      []byte("\x80\x03\x00\x04\x00\xff\xff\xff"),
		"cut":       []byte("\x80\x03\x00"),
		"cut data":  []byte("\x00\x00\x00\x01\x00\x00\x00\x09ab"),
	}
	for name, wire := range tests {
		t.Run(name, func(t *testing.T) { require.Error(t, serveBytes(t, wire, false)) })
	}

	big := http.Header{}
	for i := range 100 {
		big["X-"+string(rune('a'+i%26))+string(rune('a'+i/26))] = []string{"v"}
	}
	f, err = frames.NewFramer(&wire, &wire)
	require.NoError(t, err)
	require.Error(t, serveBytes(t, open(1, big), false), "too many headers")
	f, err = frames.NewFramer(&wire, &wire)
	require.NoError(t, err)
	bomb := open(1, http.Header{"X": {string(make([]byte, 1<<20))}})
	require.Less(t, len(bomb), 1<<12)
	require.Error(t, serveBytes(t, bomb, false), "a header that is small only while compressed")
}

// Serve returns for any input.
func FuzzServe(f *testing.F) {
	var wire bytes.Buffer
	framer, err := frames.NewFramer(&wire, &wire)
	require.NoError(f, err)
	for _, one := range []frames.Frame{
		&frames.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"data"}}},
		&frames.DataFrame{StreamId: 1, Data: []byte("data")},
		&frames.SynReplyFrame{StreamId: 1},
		&frames.PingFrame{Id: 1},
		&frames.RstStreamFrame{StreamId: 1, Status: frames.Cancel},
		&frames.GoAwayFrame{},
	} {
		require.NoError(f, framer.WriteFrame(one))
		f.Add(bytes.Clone(wire.Bytes()), true)
		f.Add(bytes.Clone(wire.Bytes()), false)
	}
	f.Fuzz(func(t *testing.T, wire []byte, client bool) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = serveBytes(t, wire, client)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Serve does not return within a minute")
		}
	})
}
