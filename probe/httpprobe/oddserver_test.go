// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oddServer answers "fresh" to whoever wants the connection closed, and anything else where it may stay open.
type oddServer struct {
	port     int
	kept     atomic.Int32 // connections on which somebody asked who wants to ask again
	asked    atomic.Int32 // how often
	accepted atomic.Int32
	ended    chan int32 // numbers of connections that have ended
}

// odd starts an oddServer that uses answer: it is called for each question, with the number of the question on this
// connection, and closes the connection by returning false.
func odd(t testing.TB, address string, answer func(conn net.Conn, nth int) bool) *oddServer {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := &oddServer{port: listener.Addr().(*net.TCPAddr).Port, ended: make(chan int32, 1000)}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			number := s.accepted.Add(1)
			wg.Go(func() {
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				s.serve(conn, answer)
				conn.Close()
				s.ended <- number
			})
		}
	})
	return s
}

func (s *oddServer) serve(conn net.Conn, answer func(net.Conn, int) bool) {
	in := bufio.NewReader(conn)
	for nth := 1; ; nth++ {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if req.Close {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfresh")
			return
		}
		s.asked.Add(1)
		if nth == 1 {
			s.kept.Add(1)
		}
		if !answer(conn, nth) {
			return
		}
	}
}

// waitEnd waits for a connection to end. What has ended before and was not waited for is forgotten.
func (s *oddServer) waitEnd(t *testing.T, number int32) {
	t.Helper()
	for late := time.After(long); ; {
		select {
		case n := <-s.ended:
			if n == number {
				return
			}
		case <-late:
			t.Fatalf("connection %d is still open", number)
		}
	}
}

// says is an answer in plain bytes.
func says(bytes string) func(net.Conn, int) bool {
	return func(conn net.Conn, _ int) bool {
		io.WriteString(conn, bytes)
		return true
	}
}
