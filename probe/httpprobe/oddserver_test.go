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

// oddServer responds "fresh" to requests that close the connection. On other connections the test sets the response.
type oddServer struct {
	port     int
	kept     atomic.Int32 // connections with a request that keeps them open
	asked    atomic.Int32 // number of requests
	accepted atomic.Int32
	ended    chan int32 // numbers of connections that have ended
}

// startOddServer starts an oddServer. answer is called for each request with its number on this connection, and returns whether
// the connection stays open.
func startOddServer(t testing.TB, address string, answer func(conn net.Conn, nth int) bool) *oddServer {
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

// waitEnd waits until a connection is closed. It ignores connections that closed before.
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

// sendBytes returns an answer that sends bytes.
func sendBytes(bytes string) func(net.Conn, int) bool {
	return func(conn net.Conn, _ int) bool {
		io.WriteString(conn, bytes)
		return true
	}
}
