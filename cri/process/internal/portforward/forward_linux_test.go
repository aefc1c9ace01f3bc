// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package portforward_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process/internal/portforward"
)

// serveProgram runs a program on a port of the loopback interface until the test ends.
func serveProgram(t *testing.T, address string, program func(net.Conn)) int32 {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				program(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func echoConn(c net.Conn) { _, _ = io.Copy(c, c) }

// tcpPair returns the two ends of a connection that can be closed in one direction.
func tcpPair(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ours0, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs0, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		ours0.Close()
		theirs0.Close()
	})
	return ours0.(*net.TCPConn), theirs0.(*net.TCPConn)
}

func startForward(ctx context.Context, t *testing.T, port int32, conn io.ReadWriteCloser) chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- portforward.Forward(ctx, "", port, conn) }()
	return done
}

// All bytes arrive in both directions, over IPv4 and IPv6, and the end of each direction is passed on.
func TestForward(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			port := serveProgram(t, address, echoConn)
			client, conn := tcpPair(t)
			done := startForward(t.Context(), t, port, conn)
			data := make([]byte, 16<<20)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
			go func() {
				_, _ = client.Write(data)
				_ = client.CloseWrite()
			}()
			back, err := io.ReadAll(client)
			require.NoError(t, err)
			assert.Equal(t, sha256.Sum256(data), sha256.Sum256(back))
			require.NoError(t, <-done)
			_, err = conn.Write([]byte("x"))
			assert.ErrorIs(t, err, net.ErrClosed, "the stream is closed")
		})
	}
}

// A stream without CloseWrite is closed when the port ends, because nothing else can signal the end.
func TestForwardClosesStreamWhenPortEnds(t *testing.T) {
	port := serveProgram(t, "127.0.0.1:0", func(c net.Conn) { _, _ = io.WriteString(c, "bye") })
	client, conn := net.Pipe()
	done := startForward(t.Context(), t, port, conn)
	said, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "bye", string(said))
	require.NoError(t, <-done)
}

func TestForwardErrors(t *testing.T) {
	const free = 1 // a reserved port without a listener
	for _, row := range []struct {
		port  int32
		netns string
		want  string
	}{
		{free, "", "connection refused"},
		{0, "", "port 0: must be"},
		{65536, "", "port 65536: must be"},
		{free, "/does/not/exist", "enter network namespace"},
		{free, "/dev/null", "enter network namespace"},
	} {
		client, conn := net.Pipe()
		require.ErrorContains(t, portforward.Forward(t.Context(), row.netns, row.port, conn), row.want)
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the stream is closed")
	}
}

// When the context ends both sides are closed at once, and the program receives a reset, not the end of the data.
func TestForwardResetsWhenContextEnds(t *testing.T) {
	saw := make(chan error, 1)
	port := serveProgram(t, "127.0.0.1:0", func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		saw <- err
	})
	cause := errors.New("the pod is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	client, conn := net.Pipe()
	done := startForward(ctx, t, port, conn)
	_, err := client.Write([]byte("some"))
	require.NoError(t, err)
	cancel(cause)
	require.ErrorIs(t, <-done, cause)
	require.Error(t, <-saw)
}

// One program of many never reads: its connection is reset after 5 s, and other connections continue.
func TestForwardResetsStalledPortOnly(t *testing.T) {
	before := runtime.NumGoroutine()
	release := make(chan struct{})
	deaf := serveProgram(t, "127.0.0.1:0", func(net.Conn) { <-release })
	port := serveProgram(t, "127.0.0.1:0", echoConn)
	defer close(release)
	client, conn := tcpPair(t)
	stalled := startForward(t.Context(), t, deaf, conn)
	go func() {
		junk := make([]byte, 1<<20)
		for {
			if _, err := client.Write(junk); err != nil {
				return
			}
		}
	}()
	var others sync.WaitGroup
	for i := range 99 {
		client, conn := tcpPair(t)
		done := startForward(t.Context(), t, port, conn)
		others.Go(func() {
			for round := range 20 {
				line := fmt.Sprintln("line", i, round, strings.Repeat("x", 1000))
				_, err := io.WriteString(client, line)
				assert.NoError(t, err)
				back := make([]byte, len(line))
				_, err = io.ReadFull(client, back)
				assert.NoError(t, err)
				assert.Equal(t, line, string(back))
			}
			assert.NoError(t, client.CloseWrite())
			assert.NoError(t, <-done)
		})
	}
	others.Wait()
	select {
	case err := <-stalled:
		require.ErrorIs(t, err, portforward.ErrStalled)
	case <-time.After(time.Minute):
		require.Fail(t, "the stalled connection is not reset")
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+8 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+8)
}

// A program that reads slowly receives all data.
func TestForwardSlowProgram(t *testing.T) {
	size := 3 << 20
	if os.Getenv("NODEAGENT_SOAK") != "" {
		size = 64 << 20
	}
	got := make(chan int64, 1)
	port := serveProgram(t, "127.0.0.1:0", func(c net.Conn) {
		var sum int64
		for {
			n, err := io.CopyN(io.Discard, c, 256<<10)
			sum += n
			if err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		got <- sum
	})
	client, conn := tcpPair(t)
	done := startForward(t.Context(), t, port, conn)
	_, err := client.Write(make([]byte, size))
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	assert.EqualValues(t, size, <-got)
	require.NoError(t, <-done)
}
