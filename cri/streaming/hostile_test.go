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

// soak returns the first of two values for NODEAGENT_SOAK=1.
func soak[T any](long, short T) T {
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		return long
	}
	return short
}

// hostile are the protocols of the tests here: what a runtime gets as it is, and what is translated for it.
var hostile = []string{"SPDY v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"}

// relay puts a network in front of a node.
func (r *rig) relay(t testing.TB) *streamtest.Relay {
	t.Helper()
	relay, err := streamtest.StartRelay(t.Context(), strings.TrimPrefix(r.http.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(relay.Close)
	return relay
}

// through is a URL of the node that is reached through a relay.
func (r *rig) through(relay *streamtest.Relay, url string) string {
	return strings.Replace(url, r.http.URL, "http://"+relay.Address(), 1)
}

// inUse is the memory of the process that is in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// more is how much memory there is beyond what there was.
func more(before uint64) uint64 { return max(before, inUse()) - before }

// A client that reads a byte per second holds only its own buffers, and does not delay other sessions.
func TestSlowReaderHoldsBoundedMemory(t *testing.T) {
	for _, mode := range modes {
		for _, protocol := range hostile {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newRig(t, mode, streaming.Options{})
				r.exec(t, protocol, streamtest.Command{}, "flood=1000000")
				goroutines, descriptors := settled(t, r)
				before := inUse()
				relay := r.relay(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := make(chan struct{})
				var once sync.Once
				c := streamtest.Command{Protocol: protocol, Stdout: writerFunc(func(b []byte) (int, error) {
					once.Do(func() { close(first) })
					return len(b), nil
				})}
				c.URL = r.through(relay, r.url("exec", "uid/c", c, "flood=1000000000000"))
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = c.Run(ctx)
				}()
				<-first
				relay.SetDelay(time.Second)
				for until := time.Now().Add(soak(20*time.Second, 0)); ; {
					for range 5 {
						got := r.exec(t, protocol, streamtest.Command{}, "flood=2000000")
						require.NoError(t, got.err)
						require.Equal(t, 2000000, got.stdout.Len())
					}
					if time.Now().After(until) {
						break
					}
				}
				assert.True(t, soon(func() bool { return len(r.Streams()) == 1 }), "who reads slowly is there, too, and nobody else")
				assert.Less(t, more(before), uint64(16<<20), "of both ends, the network, the runtime and the node")
				cancel()
				relay.Close()
				<-done
				sameAsBefore(t, r, goroutines, descriptors)
			})
		}
	}
}

// vanishing is a session whose client goes without a word.
type vanishing struct {
	name string
	open func(t *testing.T, r *rig, relay *streamtest.Relay) // returns when it is under way
	why  error
}

// command is a session that has written a byte.
func vanishingCommand(kind, protocol string, cmd ...string) func(*testing.T, *rig, *streamtest.Relay) {
	return func(t *testing.T, r *rig, relay *streamtest.Relay) {
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
		c.URL = r.through(relay, r.url(kind, "uid/c", c, cmd...))
		go func() { _, _ = c.Run(t.Context()) }()
		select {
		case <-first:
		case <-time.After(30 * time.Second):
			require.Fail(t, "nothing came")
		}
	}
}

// vanishingForward is a forwarded connection that has echoed a byte, and then gets bytes without an end.
func vanishingForward(tunnel, flood bool) func(*testing.T, *rig, *streamtest.Relay) {
	return func(t *testing.T, r *rig, relay *streamtest.Relay) {
		r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{81: func(c io.ReadWriteCloser) error {
			for b := make([]byte, 32<<10); ; {
				if _, err := c.Write(b); err != nil {
					return nil
				}
			}
		}}
		f, err := streamtest.Forward(t.Context(), r.through(relay, r.http.URL+"/portforward/uid"), tunnel)
		require.NoError(t, err)
		t.Cleanup(func() {
			relay.Close() // or nothing ends what the client waits for
			f.Close()
		})
		c := connect(t, f, 80)
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		if flood {
			c = connect(t, f, 81)
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}
}

// A peer that stops responding is detected when it must accept data, or else by the idle timeout. The command ends, and the
// session is released.
func TestSessionEndsWhenPeerVanishes(t *testing.T) {
	for _, mode := range modes {
		var all []vanishing
		for _, protocol := range hostile {
			all = append(all,
				vanishing{"exec that writes/" + protocol, vanishingCommand("exec", protocol, "flood=1000000000000"), streaming.ErrStallTimeout},
				vanishing{"exec that waits/" + protocol, vanishingCommand("exec", protocol, "out=x", "hang"), streaming.ErrIdleTimeout},
				vanishing{"attach that writes/" + protocol, vanishingCommand("attach", protocol, "flood=1000000000000"), streaming.ErrStallTimeout},
				vanishing{"attach that waits/" + protocol, vanishingCommand("attach", protocol, "out=x", "cat"), streaming.ErrIdleTimeout},
			)
		}
		for _, tunnel := range []bool{false, true} {
			all = append(all,
				vanishing{fmt.Sprintf("forward that writes/tunnel=%t", tunnel), vanishingForward(tunnel, true), streaming.ErrStallTimeout},
				vanishing{fmt.Sprintf("forward that waits/tunnel=%t", tunnel), vanishingForward(tunnel, false), streaming.ErrIdleTimeout},
			)
		}
		t.Run(mode, func(t *testing.T) {
			rigs := make([]*rig, len(all))
			for i, one := range all {
				o := streaming.Options{IdleTimeout: 5 * time.Second, StallTimeout: 2 * time.Minute}
				if errors.Is(one.why, streaming.ErrStallTimeout) {
					o.IdleTimeout, o.StallTimeout = o.StallTimeout, o.IdleTimeout
				}
				rigs[i] = newRig(t, mode, o)
				relay := rigs[i].relay(t)
				one.open(t, rigs[i], relay)
				relay.DropPackets()
			}
			for i, one := range all {
				if assert.True(t, soon(func() bool { return len(rigs[i].errs()) == 1 }), "%s goes on", one.name) {
					assert.ErrorIs(t, rigs[i].errs()[0], one.why, one.name)
					settled(t, rigs[i])
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
				r := newRig(t, mode, streaming.Options{CreationTimeout: 3 * time.Second, IdleTimeout: 4 * time.Second})
				u, err := streamtest.Upgrade(t.Context(), one.method, r.http.URL+one.path, one.header)
				require.NoError(t, err)
				defer u.Close()
				require.Equal(t, http.StatusSwitchingProtocols, u.Response.StatusCode)
				require.NoError(t, u.SetDeadline(time.Now().Add(time.Minute)))
				_, err = io.Copy(io.Discard, u.Reader)
				if err != nil { // a reset, not the deadline
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				}
				require.NoError(t, u.Close())
				require.True(t, soon(func() bool { return len(r.errs()) == 1 }), "the session goes on")
				require.Error(t, r.errs()[0])
				assert.Regexp(t, "timed out waiting|idle for too long", r.errs()[0].Error())
				settled(t, r)
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
		for _, protocol := range hostile {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, "streamer", streaming.Options{CreationTimeout: 3 * time.Second, IdleTimeout: 4 * time.Second})
				r.streamer.Override = answer
				var out bytes.Buffer
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c := streamtest.Command{Protocol: protocol, Stdout: &out}
				c.URL = r.url("exec", "uid/c", c, "out=x")
				fault, err := c.Run(ctx)
				require.NoError(t, ctx.Err())
				assert.Empty(t, out.String())
				assert.True(t, err != nil || fault != "", "the client is told, or its connection closed")
				if strings.HasPrefix(protocol, "SPDY") && name == "silent" {
					var no *streamtest.Refused
					require.ErrorAs(t, err, &no)
					assert.Equal(t, http.StatusInternalServerError, no.Code)
				}
				require.True(t, soon(func() bool { return len(r.errs()) == 1 }), "the session goes on")
				require.Error(t, r.errs()[0])
				require.True(t, soon(func() bool { return len(r.Streams()) == 0 }), "a session is left")
			})
		}
	}
}

// Two hundred idle sessions need some kilobytes and goroutines each, counting both ends in this process, and nothing after their
// end.
func TestIdleSessionsNeedLittleMemory(t *testing.T) {
	const sessions = 200
	for _, mode := range modes {
		for _, protocol := range hostile {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newRig(t, mode, streaming.Options{})
				r.exec(t, protocol, streamtest.Command{Stdin: strings.NewReader("x")}, "cat")
				goroutines, descriptors := settled(t, r)
				before := inUse()
				ends := make([]io.Closer, sessions)
				var tasks sync.WaitGroup
				for i := range sessions {
					stdin, in := io.Pipe()
					out, stdout := io.Pipe()
					ends[i] = in
					c := streamtest.Command{Protocol: protocol, Stdin: stdin, Stdout: stdout}
					c.URL = r.url("exec", fmt.Sprintf("uid%d/c", i/100), c, "cat")
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
				memory := more(before) / sessions
				t.Logf("%d goroutines and %d KiB for each", perSession, memory>>10)
				assert.LessOrEqual(t, perSession, 40)
				assert.Less(t, memory, uint64(1<<20))
				for _, end := range ends {
					require.NoError(t, end.Close())
				}
				tasks.Wait()
				sameAsBefore(t, r, goroutines, descriptors)
			})
		}
	}
}
