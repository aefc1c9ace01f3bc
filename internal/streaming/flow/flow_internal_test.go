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

// conn is a connection with bytes that were read before Copy.
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

// newConnPair returns both ends of a connection. The second one is a RawSource.
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

// All available bytes are written at once, after the bytes that were read before.
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
		t.Skip("this platform cannot read sockets")
	}
	require.NoError(t, Copy(&to, c))
	assert.Equal(t, want.Bytes(), to.Bytes())
	assert.Less(t, to.n, 500, "1,000 small packets are written with fewer writes")
}

// Copy returns when its reader is closed, when its writer fails, and when the connection is reset.
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
		require.Fail(t, "Copy does not return within a minute")
	}

	runtime, c = newConnPair(t, nil)
	go func() { done <- Copy(failingWriter{}, c) }()
	_, err = runtime.Write([]byte("x"))
	require.NoError(t, err)
	select {
	case err := <-done:
		require.ErrorIs(t, err, io.ErrClosedPipe)
	case <-time.After(time.Minute):
		require.Fail(t, "Copy does not return within a minute")
	}

	runtime, c = newConnPair(t, nil)
	require.NoError(t, runtime.(*net.TCPConn).SetLinger(0))
	go func() { done <- Copy(io.Discard, c) }()
	require.NoError(t, runtime.Close())
	select {
	case err := <-done:
		require.Error(t, err, "a reset is an error, not the end of the data")
	case <-time.After(time.Minute):
		require.Fail(t, "Copy does not return within a minute")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Data from a reader without a socket, such as TLS or a WebSocket, is copied with a small buffer until a large read occurs.
func TestCopyWithoutASocket(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	for _, sizes := range [][]int{{4, 4, 8 << 10}, {1 << 20}, {1}, {4, 4, 4, 4, 4, 4, 16 << 10}} {
		var to countingWriter
		require.NoError(t, Copy(&to, &pieceReader{bytes.NewReader(want), sizes}))
		assert.True(t, bytes.Equal(want, to.Bytes()), "%v", sizes)
	}
}

// pieceReader limits each read to the next of the given sizes.
type pieceReader struct {
	io.Reader
	sizes []int
}

func (p *pieceReader) Read(b []byte) (int, error) {
	size := p.sizes[0]
	p.sizes = append(p.sizes[1:], size)
	return p.Reader.Read(b[:min(len(b), size)])
}
