// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conn is a connection from which bytes were read before.
type conn struct {
	net.Conn

	early []byte
}

func (c *conn) Raw() ([]byte, syscall.RawConn) {
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, nil
	}
	return c.early, raw
}

// newConnPair returns both ends of a connection; the second one is a RawSource.
func newConnPair(t *testing.T, early []byte) (net.Conn, *conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return theirs, &conn{Conn: ours, early: early}
}

// countingWriter is a writer that counts its writes.
type countingWriter struct {
	bytes.Buffer
	n int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.n++
	return w.Buffer.Write(b)
}

// All available bytes are written at once, after the bytes that were read with the headers.
func TestCopyReadsAllAvailableBytes(t *testing.T) {
	runtime, c := newConnPair(t, []byte("early "))
	var want bytes.Buffer
	want.WriteString("early ")
	for i := range 1000 {
		word := []byte{byte(i), byte(i >> 8), 0, 1}
		want.Write(word)
		_, err := runtime.Write(word)
		require.NoError(t, err)
	}
	require.NoError(t, runtime.Close())
	var to countingWriter
	if !canReadSocket {
		t.Skip("sockets are not read from here")
	}
	require.NoError(t, Copy(&to, c))
	assert.Equal(t, want.Bytes(), to.Bytes())
	assert.Less(t, to.n, 500, "4,000 bytes that wait")
}

// A copy ends with its reader, with an error of its writer, and when its connection is closed.
func TestCopyEndsWithReaderWriterAndConnection(t *testing.T) {
	runtime, c := newConnPair(t, nil)
	done := make(chan error, 1)
	go func() { done <- Copy(io.Discard, c) }()
	_, err := runtime.Write(bytes.Repeat([]byte("x"), 3*bufferSize))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	select {
	case err := <-done:
		require.ErrorIs(t, err, net.ErrClosed)
	case <-time.After(time.Minute):
		require.Fail(t, "the copy goes on")
	}

	runtime, c = newConnPair(t, nil)
	go func() { done <- Copy(failingWriter{}, c) }()
	_, err = runtime.Write([]byte("x"))
	require.NoError(t, err)
	select {
	case err := <-done:
		require.ErrorIs(t, err, io.ErrClosedPipe)
	case <-time.After(time.Minute):
		require.Fail(t, "the copy goes on")
	}

	runtime, c = newConnPair(t, nil)
	require.NoError(t, runtime.(*net.TCPConn).SetLinger(0))
	go func() { done <- Copy(io.Discard, c) }()
	require.NoError(t, runtime.Close())
	select {
	case err := <-done:
		require.Error(t, err, "a reset is no end")
	case <-time.After(time.Minute):
		require.Fail(t, "the copy goes on")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A reader without a socket, such as TLS or a WebSocket, is copied with a small buffer until much data arrives.
func TestCopyWithoutASocket(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	for _, sizes := range [][]int{{4, 4, 8 << 10}, {1 << 20}, {1}, {4, 4, 4, 4, 4, 4, 16 << 10}} {
		var to countingWriter
		require.NoError(t, Copy(&to, &pieceReader{bytes.NewReader(want), sizes}))
		assert.True(t, bytes.Equal(want, to.Bytes()), "%v", sizes)
	}
}

// pieceReader is a reader that returns pieces of the given sizes in turn.
type pieceReader struct {
	io.Reader
	sizes []int
}

func (p *pieceReader) Read(b []byte) (int, error) {
	size := p.sizes[0]
	p.sizes = append(p.sizes[1:], size)
	return p.Reader.Read(b[:min(len(b), size)])
}
