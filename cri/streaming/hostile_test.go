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
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// soakDuration returns long if NODEAGENT_SOAK=1 is set, otherwise short.
func soakDuration[T any](long, short T) T {
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		return long
	}
	return short
}

// hostileProtocols has the protocols of these tests: one that is proxied unchanged, and one that is translated.
var hostileProtocols = []string{"SPDY v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"}

// startRelay starts a relay in front of the node.
func (r *testNode) startRelay(t testing.TB) *streamtest.Relay {
	t.Helper()
	relay, err := streamtest.StartRelay(t.Context(), strings.TrimPrefix(r.http.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(relay.Close)
	return relay
}

// relayURL returns a URL of the node through a relay.
func (r *testNode) relayURL(relay *streamtest.Relay, url string) string {
	return strings.Replace(url, r.http.URL, "http://"+relay.Address(), 1)
}

// memoryInUse returns the memory of the process in use.
func memoryInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// memoryGrowth returns the memory in use beyond before.
func memoryGrowth(before uint64) uint64 { return max(before, memoryInUse()) - before }

// A client that reads a byte per second holds only its own buffers, and does not delay other sessions.
func TestSlowReaderHoldsBoundedMemory(t *testing.T) {
	for _, mode := range modes {
		for _, protocol := range hostileProtocols {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newTestNode(t, mode, streaming.Options{})
				r.runExec(t, protocol, streamtest.Command{}, "flood=1000000")
				goroutines, descriptors := awaitNoSessions(t, r)
				before := memoryInUse()
				relay := r.startRelay(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := make(chan struct{})
				var once sync.Once
				c := streamtest.Command{Protocol: protocol, Stdout: writerFunc(func(b []byte) (int, error) {
					once.Do(func() { close(first) })
					return len(b), nil
				})}
				c.URL = r.relayURL(relay, r.sessionURL("exec", "uid/c", c, "flood=1000000000000"))
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = c.Run(ctx)
				}()
				<-first
				relay.SetDelay(time.Second)
				for until := time.Now().Add(soakDuration(20*time.Second, 0)); ; {
					for range 5 {
						got := r.runExec(t, protocol, streamtest.Command{}, "flood=2000000")
						require.NoError(t, got.err)
						require.Equal(t, 2000000, got.stdout.Len())
					}
					if time.Now().After(until) {
						break
					}
				}
				assert.True(t, eventually(func() bool { return len(r.Streams()) == 1 }), "only the session of the slow reader is left")
				assert.Less(t, memoryGrowth(before), uint64(16<<20), "memory of client, runtime, node and network")
				cancel()
				relay.Close()
				<-done
				checkNoLeaks(t, r, goroutines, descriptors)
			})
		}
	}
}

// vanishingSession is a session whose client stops responding.
type vanishingSession struct {
	name string
	open func(t *testing.T, r *testNode, relay *streamtest.Relay) // returns when the session runs
	why  error
}

// vanishingCommand starts a session that has transferred a byte.
func vanishingCommand(kind, protocol string, cmd ...string) func(*testing.T, *testNode, *streamtest.Relay) {
	return func(t *testing.T, r *testNode, relay *streamtest.Relay) {
		if kind == "attach" {
			r.runtime.Main = cmd
		}
		first := make(chan struct{})
		var once sync.Once
		c := streamtest.Command{
			Protocol: protocol, Stdin: neverEnds{t.Context()},
			Stdout: writerFunc(func(b []byte) (int, error) {
				if len(b) > 0 {
					once.Do(func() { close(first) })
				}
				return len(b), nil
			}),
		}
		c.URL = r.relayURL(relay, r.sessionURL(kind, "uid/c", c, cmd...))
		go func() { _, _ = c.Run(t.Context()) }()
		select {
		case <-first:
		case <-time.After(30 * time.Second):
			require.Fail(t, "nothing came")
		}
	}
}

// vanishingForward starts a forwarded connection that has echoed a byte and then receives endless data.
func vanishingForward(tunnel, flood bool) func(*testing.T, *testNode, *streamtest.Relay) {
	return func(t *testing.T, r *testNode, relay *streamtest.Relay) {
		r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{81: func(c io.ReadWriteCloser) error {
			for b := make([]byte, 32<<10); ; {
				if _, err := c.Write(b); err != nil {
					return nil
				}
			}
		}}
		f, err := streamtest.Forward(t.Context(), r.relayURL(relay, r.http.URL+"/portforward/uid"), tunnel)
		require.NoError(t, err)
		t.Cleanup(func() {
			relay.Close() // otherwise the client would wait forever
			f.Close()
		})
		c := openConnection(t, f, 80)
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		if flood {
			c = openConnection(t, f, 81)
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}
}

// A peer that stops responding is detected when it must accept data, or else by the idle timeout. The command ends, and the
// session is released.
func TestSessionEndsWhenPeerVanishes(t *testing.T) {
	for _, mode := range modes {
		var all []vanishingSession
		for _, protocol := range hostileProtocols {
			all = append(all,
				vanishingSession{"exec that writes/" + protocol, vanishingCommand("exec", protocol, "flood=1000000000000"), streaming.ErrStallTimeout},
				vanishingSession{"exec that waits/" + protocol, vanishingCommand("exec", protocol, "out=x", "hang"), streaming.ErrIdleTimeout},
				vanishingSession{"attach that writes/" + protocol, vanishingCommand("attach", protocol, "flood=1000000000000"), streaming.ErrStallTimeout},
				vanishingSession{"attach that waits/" + protocol, vanishingCommand("attach", protocol, "out=x", "cat"), streaming.ErrIdleTimeout},
			)
		}
		for _, tunnel := range []bool{false, true} {
			all = append(all,
				vanishingSession{fmt.Sprintf("forward that writes/tunnel=%t", tunnel), vanishingForward(tunnel, true), streaming.ErrStallTimeout},
				vanishingSession{fmt.Sprintf("forward that waits/tunnel=%t", tunnel), vanishingForward(tunnel, false), streaming.ErrIdleTimeout},
			)
		}
		t.Run(mode, func(t *testing.T) {
			rigs := make([]*testNode, len(all))
			for i, one := range all {
				o := streaming.Options{IdleTimeout: 5 * time.Second, StallTimeout: 2 * time.Minute}
				if errors.Is(one.why, streaming.ErrStallTimeout) {
					o.IdleTimeout, o.StallTimeout = o.StallTimeout, o.IdleTimeout
				}
				rigs[i] = newTestNode(t, mode, o)
				relay := rigs[i].startRelay(t)
				one.open(t, rigs[i], relay)
				relay.DropPackets()
			}
			for i, one := range all {
				if assert.True(t, eventually(func() bool { return len(rigs[i].sessionErrors()) == 1 }), "session %s ends", one.name) {
					assert.ErrorIs(t, rigs[i].sessionErrors()[0], one.why, one.name)
					awaitNoSessions(t, rigs[i])
				}
			}
		})
	}
}

// A session whose client opens no or too few streams ends after Options.CreationTimeout.
func TestClientWithoutStreamsTimesOut(t *testing.T) {
	spdy := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	forward := spdy.Clone()
	forward.Set("X-Stream-Protocol-Version", "portforward.k8s.io")
	socket := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {streamtest.Key}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
	}
	tunnel := socket.Clone()
	tunnel.Set("Sec-Websocket-Protocol", "SPDY/3.1+portforward.k8s.io")
	for _, mode := range modes {
		for name, one := range map[string]struct {
			method, path string
			header       http.Header
		}{
			"SPDY":      {http.MethodPost, "/exec/uid/c?command=cat&input=1&output=1", spdy},
			"WebSocket": {http.MethodGet, "/exec/uid/c?command=cat&input=1&output=1", socket},
			"forward":   {http.MethodPost, "/portforward/uid", forward},
			"tunnel":    {http.MethodGet, "/portforward/uid", tunnel},
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newTestNode(t, mode, streaming.Options{CreationTimeout: 3 * time.Second, IdleTimeout: 4 * time.Second})
				u, err := streamtest.Upgrade(t.Context(), one.method, r.http.URL+one.path, one.header)
				require.NoError(t, err)
				defer u.Close()
				require.Equal(t, http.StatusSwitchingProtocols, u.Response.StatusCode)
				require.NoError(t, u.SetDeadline(time.Now().Add(time.Minute)))
				_, err = io.Copy(io.Discard, u.Reader)
				if err != nil { // a reset, but not the deadline
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				}
				require.NoError(t, u.Close())
				require.True(t, eventually(func() bool { return len(r.sessionErrors()) == 1 }), "the session ends")
				require.Error(t, r.sessionErrors()[0])
				assert.Regexp(t, "timed out waiting|idle for too long", r.sessionErrors()[0].Error())
				awaitNoSessions(t, r)
			})
		}
	}
}

// A session whose runtime sends no response, or nothing after its response, ends after Options.CreationTimeout. In the first case
// the client gets the error.
func TestUnresponsiveRuntimeTimesOut(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	agrees := func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: "+r.Header.Get("X-Stream-Protocol-Version")+"\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}
	for name, answer := range map[string]http.HandlerFunc{"silent": silent, "agrees": agrees} {
		for _, protocol := range hostileProtocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				r := newTestNode(t, "streamer", streaming.Options{CreationTimeout: 3 * time.Second, IdleTimeout: 4 * time.Second})
				r.streamer.Override = answer
				var out bytes.Buffer
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c := streamtest.Command{Protocol: protocol, Stdout: &out}
				c.URL = r.sessionURL("exec", "uid/c", c, "out=x")
				fault, err := c.Run(ctx)
				require.NoError(t, ctx.Err())
				assert.Empty(t, out.String())
				assert.True(t, err != nil || fault != "", "the client gets an error, or its connection is closed")
				if strings.HasPrefix(protocol, "SPDY") && name == "silent" {
					var no *streamtest.Refused
					require.ErrorAs(t, err, &no)
					assert.Equal(t, http.StatusInternalServerError, no.Code)
				}
				require.True(t, eventually(func() bool { return len(r.sessionErrors()) == 1 }), "the session ends")
				require.Error(t, r.sessionErrors()[0])
				require.True(t, eventually(func() bool { return len(r.Streams()) == 0 }), "no session is left")
			})
		}
	}
}

// Two hundred idle sessions need some kilobytes and goroutines each, counting both ends in this process, and nothing after their
// end.
func TestIdleSessionsNeedLittleMemory(t *testing.T) {
	const sessions = 200
	for _, mode := range modes {
		for _, protocol := range hostileProtocols {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newTestNode(t, mode, streaming.Options{})
				r.runExec(t, protocol, streamtest.Command{Stdin: strings.NewReader("x")}, "cat")
				goroutines, descriptors := awaitNoSessions(t, r)
				before := memoryInUse()
				ends := make([]io.Closer, sessions)
				var tasks sync.WaitGroup
				for i := range sessions {
					stdin, in := io.Pipe()
					out, stdout := io.Pipe()
					ends[i] = in
					c := streamtest.Command{Protocol: protocol, Stdin: stdin, Stdout: stdout}
					c.URL = r.sessionURL("exec", fmt.Sprintf("uid%d/c", i/100), c, "cat")
					tasks.Go(func() {
						_, err := c.Run(t.Context())
						assert.NoError(t, err)
						_ = stdout.Close()
					})
					_, err := in.Write([]byte("x"))
					require.NoError(t, err)
					_, err = io.ReadFull(out, make([]byte, 1))
					require.NoError(t, err)
				}
				perSession := (runtime.NumGoroutine() - goroutines) / sessions
				memory := memoryGrowth(before) / sessions
				t.Logf("%d goroutines and %d KiB per session", perSession, memory>>10)
				assert.LessOrEqual(t, perSession, 40)
				assert.Less(t, memory, uint64(1<<20))
				for _, end := range ends {
					require.NoError(t, end.Close())
				}
				tasks.Wait()
				checkNoLeaks(t, r, goroutines, descriptors)
			})
		}
	}
}
