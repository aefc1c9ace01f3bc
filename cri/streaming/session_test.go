// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// backgroundSession is a session that runs until the test ends it.
type backgroundSession struct {
	cancel context.CancelFunc
	done   chan struct{}
	result
}

// startSession runs a command in the background and waits until it runs.
func (r *testNode) startSession(t testing.TB, protocol, id string, cmd ...string) *backgroundSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	b := &backgroundSession{cancel: cancel, done: make(chan struct{})}
	c := streamtest.Command{Protocol: protocol, Stdout: &b.stdout}
	c.URL = r.sessionURL("exec", id, c, cmd...)
	before := r.runtime.Started.Load() // of running sessions another one may end, and this one may end before the check
	go func() {
		defer close(b.done)
		b.fault, b.err = c.Run(ctx)
	}()
	t.Cleanup(cancel)
	require.Eventually(t, func() bool { return r.runtime.Started.Load() > before }, timeout, time.Millisecond)
	return b
}

// wait waits for the end of the session.
func (b *backgroundSession) wait(t testing.TB) {
	t.Helper()
	select {
	case <-b.done:
	case <-time.After(timeout):
		require.Fail(t, "the session does not end")
	}
}

// When the client disconnects, the command is killed and the session is released.
func TestDisconnectedClientEndsTheCommand(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		b := r.startSession(t, protocol, "uid/c", "hang")
		b.cancel()
		b.wait(t)
		awaitNoSessions(t, r)
		assert.EqualValues(t, 1, r.runtime.Killed.Load())
		assert.Equal(t, []error{nil}, r.sessionErrors(), "a disconnected client is not an error")
	})
}

// A closed session ends within a second. The client gets the reason if the Server implements the protocol.
func TestCloseSessionsSendsTheReason(t *testing.T) {
	var mu sync.Mutex
	quickest := time.Hour // slower runs share a busy machine
	t.Cleanup(func() { assert.Less(t, quickest, time.Second) })
	for _, protocol := range streamtest.Protocols()[1:] { // the oldest protocol cannot send an error
		for _, id := range []string{"uid", "uid/c"} {
			t.Run(protocol+"/"+id, func(t *testing.T) {
				t.Parallel()
				r := newTestNode(t, "runner", streaming.Options{})
				other := r.startSession(t, protocol, "uid2/c", "hang")
				b := r.startSession(t, protocol, "uid/c", "hang")
				began := time.Now()
				assert.Equal(t, 1, r.CloseSessions(id, "the container has exited"))
				b.wait(t)
				took := time.Since(began)
				mu.Lock()
				quickest = min(quickest, took)
				mu.Unlock()
				assert.Less(t, took, 20*time.Second, "a slow client would get more time")
				assert.Contains(t, b.fault, "session was closed: the container has exited")
				require.Eventually(t, func() bool { return len(r.Streams()) == 1 }, timeout, time.Millisecond)
				other.cancel()
				awaitNoSessions(t, r)
				assert.ErrorIs(t, r.sessionErrors()[0], streaming.ErrSessionClosed)
			})
		}
	}
}

// A proxied session ends without a reason; a translated session sends it.
func TestCloseSessionsOfProxiedSession(t *testing.T) {
	for _, protocol := range []string{"SPDY v4.channel.k8s.io", "WebSocket v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			r := newTestNode(t, "streamer", streaming.Options{})
			b := r.startSession(t, protocol, "uid/c", "hang")
			assert.Equal(t, 1, r.CloseSessions("uid/c", "the container has exited"))
			b.wait(t)
			if strings.Contains(protocol, "v5") {
				assert.Contains(t, b.fault, "session was closed: the container has exited")
			}
			awaitNoSessions(t, r)
			assert.EqualValues(t, 1, r.runtime.Killed.Load(), "the runtime has killed the command")
		})
	}
}

// A session that ends by itself is not interrupted: all its output and its exit code arrive.
func TestCloseSessionsLetsEndingSessionFinish(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		var b *backgroundSession
		var last error
		for range 20 { // a busy machine may exceed the half second that a session gets to finish
			b = r.startSession(t, protocol, "uid/c", "sleep=100ms", "flood=200000", "exit=3")
			r.CloseSessions("uid", "the pod was deleted")
			b.wait(t)
			awaitNoSessions(t, r)
			ended := r.sessionErrors()
			if last = ended[len(ended)-1]; !errors.Is(last, streaming.ErrSessionClosed) {
				break
			}
		}
		require.NoError(t, last)
		require.NoError(t, b.err)
		assert.Equal(t, 200000, b.stdout.Len()) // more than a SPDY window, but little enough for a busy machine
		if asJSON(protocol) {
			assert.Contains(t, b.fault, "NonZeroExitCode")
		}
	})
}

func TestSessionLimits(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newTestNode(t, mode, streaming.Options{MaxSessions: 3, MaxPerPod: 2})
			const protocol = "SPDY v4.channel.k8s.io"
			refused := func(id, text string) {
				t.Helper()
				c := streamtest.Command{Protocol: protocol, Stdout: io.Discard}
				c.URL = r.sessionURL("exec", id, c, "out=x")
				_, err := c.Run(t.Context())
				var no *streamtest.Refused
				require.ErrorAs(t, err, &no)
				assert.Equal(t, http.StatusTooManyRequests, no.Code)
				assert.Equal(t, "60", no.Header.Get("Retry-After"))
				assert.Equal(t, text, no.Body)
			}
			one := r.startSession(t, protocol, "a/1", "hang")
			r.startSession(t, protocol, "a/2", "hang")
			refused("a/3", "too many streaming sessions: pod a has 2")
			r.startSession(t, protocol, "b/1", "hang")
			refused("c/1", "too many streaming sessions: the node has 3")
			one.cancel()
			require.Eventually(t, func() bool { return len(r.Streams()) == 2 }, timeout, time.Millisecond)
			r.startSession(t, protocol, "a/3", "hang")
		})
	}
}

// A few pods cannot use all sessions of the node: the last quarter is reserved for pods with few sessions.
func TestLastQuarterReservedForPodsWithFewSessions(t *testing.T) {
	r := newTestNode(t, modes[0], streaming.Options{MaxSessions: 8, MaxPerPod: 8})
	const protocol = "SPDY v4.channel.k8s.io"
	for i := range 6 {
		r.startSession(t, protocol, fmt.Sprint("a/", i), "hang")
	}
	c := streamtest.Command{Protocol: protocol, Stdout: io.Discard}
	c.URL = r.sessionURL("exec", "a/6", c, "out=x")
	_, err := c.Run(t.Context())
	var no *streamtest.Refused
	require.ErrorAs(t, err, &no)
	require.Equal(t, "too many streaming sessions: the node has 6, and the last quarter is reserved for pods with fewer than the 6 sessions of pod a", no.Body)
	r.startSession(t, protocol, "b/1", "hang")
	r.startSession(t, protocol, "c/1", "hang")
}

func TestShutdownWaitsThenClosesSessions(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newTestNode(t, mode, streaming.Options{})
			quick := r.startSession(t, "WebSocket v5.channel.k8s.io", "uid/c", "deaf", "out=done")
			slow := r.startSession(t, "WebSocket v5.channel.k8s.io", "uid/c", "hang")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan struct{})
			go func() {
				defer close(over)
				r.Shutdown(ctx)
			}()
			var no *streamtest.Refused
			require.True(t, eventually(func() bool { // Shutdown may begin late
				return errors.As(r.runExec(t, "SPDY v4.channel.k8s.io", streamtest.Command{}, "out=x").err, &no)
			}))
			assert.Equal(t, http.StatusServiceUnavailable, no.Code)
			r.runtime.Release()
			quick.wait(t)
			assert.Equal(t, "done", quick.stdout.String())
			assert.NotEmpty(t, r.Streams(), "a session continues until ctx ends")
			cancel()
			slow.wait(t)
			assert.Contains(t, slow.fault, "shutting down")
			<-over
			assert.Empty(t, r.Streams())
			r.Shutdown(t.Context()) // a second Shutdown returns at once
		})
	}
}

// A session is closed when no byte is transferred, or a peer accepts no byte, for too long. The hooks get the reason.
func TestSessionClosedWhenIdleOrStalled(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode+"/idle", func(t *testing.T) {
			r := newTestNode(t, mode, streaming.Options{IdleTimeout: 150 * time.Millisecond})
			c := streamtest.Command{Protocol: "SPDY v4.channel.k8s.io", Stdout: io.Discard}
			c.URL = r.sessionURL("exec", "uid/c", c, "hang")
			_, _ = c.Run(t.Context())
			require.True(t, eventually(func() bool { return len(r.sessionErrors()) == 1 }))
			awaitNoSessions(t, r)
			assert.ErrorIs(t, r.sessionErrors()[0], streaming.ErrIdleTimeout)
		})
		t.Run(mode+"/stalled", func(t *testing.T) {
			r := newTestNode(t, mode, streaming.Options{StallTimeout: 150 * time.Millisecond})
			stuck := make(chan struct{})
			defer close(stuck)
			c := streamtest.Command{Protocol: "WebSocket v4.channel.k8s.io", Stdout: writerFunc(func([]byte) (int, error) {
				<-stuck
				return 0, io.ErrClosedPipe
			})}
			c.URL = r.sessionURL("exec", "uid/c", c, "flood=100000000")
			go func() { _, _ = c.Run(t.Context()) }()
			require.Eventually(t, func() bool { return len(r.sessionErrors()) == 1 }, timeout, 5*time.Millisecond)
			assert.ErrorIs(t, r.sessionErrors()[0], streaming.ErrStallTimeout)
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A client that reads slowly, or that continues to send, gets all output that the command wrote before it ended.
func TestOutputArrivesAfterTheCommandEnds(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		t.Parallel()
		var out bytes.Buffer
		more := make(chan struct{})
		defer close(more)
		c := streamtest.Command{
			Protocol: protocol,
			Stdin:    readerFunc(func(b []byte) (int, error) { return readSlowly(b, more) }),
			Stdout: writerFunc(func(b []byte) (int, error) {
				time.Sleep(time.Millisecond)
				return out.Write(b)
			}),
		}
		c.URL = r.sessionURL("exec", "uid/c", c, "flood=600000", "out=end")
		fault, err := c.Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 600003, out.Len())
		assert.True(t, bytes.HasSuffix(out.Bytes(), []byte("end")))
		if asJSON(protocol) {
			assert.Contains(t, fault, "Success")
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// readSlowly returns a few bytes at intervals until over is closed.
func readSlowly(b []byte, over <-chan struct{}) (int, error) {
	select {
	case <-over:
		return 0, io.EOF
	case <-time.After(time.Millisecond):
		return min(len(b), 512), nil
	}
}

// A runtime call that ignores the end of its session holds its own goroutine, not the client; the session still counts.
func TestHungRuntimeCallDoesNotHoldTheClient(t *testing.T) {
	t.Parallel()
	r := newTestNode(t, "runner", streaming.Options{})
	b := r.startSession(t, "SPDY v4.channel.k8s.io", "uid/c", "deaf")
	r.CloseSessions("uid", "over")
	time.Sleep(200 * time.Millisecond)
	assert.Len(t, r.Streams(), 1)
	b.wait(t) // the connection is closed without a response of the runtime
	r.runtime.Release()
	awaitNoSessions(t, r)
}

// Two hundred concurrent commands: every output is complete, every exit code correct, and all sessions are released.
func TestConcurrentCommands(t *testing.T) {
	const sessions = 200
	for _, mode := range modes {
		for _, protocol := range []string{"SPDY v4.channel.k8s.io", "WebSocket v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"} {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newTestNode(t, mode, streaming.Options{})
				r.runExec(t, protocol, streamtest.Command{}, "out=warm")
				goroutines, descriptors := awaitNoSessions(t, r)
				var tasks sync.WaitGroup
				for i := range sessions {
					tasks.Go(func() {
						size := 1000 + 1000*(i%50)
						got := r.runExec(t, protocol, streamtest.Command{},
							fmt.Sprintf("flood=%d", size), fmt.Sprintf("exit=%d", i%100))
						if !assert.NoError(t, got.err) {
							return
						}
						want := make([]byte, size)
						streamtest.FillPattern(0, want)
						assert.Equal(t, want, got.stdout.Bytes())
						if i%100 != 0 {
							assert.Contains(t, got.fault, fmt.Sprintf(`"message":"%d"`, i%100))
						}
					})
				}
				tasks.Wait()
				checkNoLeaks(t, r, goroutines, descriptors)
			})
		}
	}
}
