// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// openForward opens a port-forward that is closed when the test ends.
func (r *testNode) openForward(t testing.TB, tunnel bool) *streamtest.Forwarder {
	t.Helper()
	f, err := streamtest.Forward(t.Context(), r.http.URL+"/portforward/uid", tunnel)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// runWithTunnels runs a test with each kind of runtime, with SPDY and with SPDY in a WebSocket.
func runWithTunnels(t *testing.T, o streaming.Options, f func(t *testing.T, r *testNode, tunnel bool)) {
	for _, mode := range modes {
		for _, tunnel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tunnel=%t", mode, tunnel), func(t *testing.T) {
				f(t, newTestNode(t, mode, o), tunnel)
			})
		}
	}
}

func openConnection(t testing.TB, f *streamtest.Forwarder, port int) *streamtest.Connection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c, err := f.Connect(ctx, port)
	require.NoError(t, err)
	return c
}

func TestForward(t *testing.T) {
	runWithTunnels(t, streaming.Options{}, func(t *testing.T, r *testNode, tunnel bool) {
		f := r.openForward(t, tunnel)
		for port := 80; port < 90; port++ {
			c := openConnection(t, f, port)
			go func() {
				_, _ = fmt.Fprintf(c, "hello %d", port)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("hello %d", port), string(got))
			fault, err := c.ReadError()
			require.NoError(t, err)
			assert.Empty(t, fault)
		}
	})
}

// A port that cannot be reached is an error of its own connection.
func TestForwardErrorEndsOnlyItsConnection(t *testing.T) {
	runWithTunnels(t, streaming.Options{}, func(t *testing.T, r *testNode, tunnel bool) {
		r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{
			81: func(io.ReadWriteCloser) error { return io.ErrNoProgress },
		}
		f := r.openForward(t, tunnel)
		bad, good := openConnection(t, f, 81), openConnection(t, f, 80)
		fault, err := bad.ReadError()
		require.NoError(t, err)
		assert.Contains(t, fault, "error forwarding port 81 to pod uid, uid ")
		assert.Contains(t, fault, io.ErrNoProgress.Error())
		_, err = good.Write([]byte("still here"))
		require.NoError(t, err)
		b := make([]byte, 10)
		_, err = io.ReadFull(good, b)
		require.NoError(t, err)
		assert.Equal(t, "still here", string(b))
	})
}

// A connection that its port does not read blocks other connections for BlockedForwardTimeout, and is then reset.
func TestForwardResetsBlockedConnection(t *testing.T) {
	runWithTunnels(t, streaming.Options{BlockedForwardTimeout: 200 * time.Millisecond}, func(t *testing.T, r *testNode, tunnel bool) {
		stuck := make(chan struct{})
		defer close(stuck)
		r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{
			81: func(io.ReadWriteCloser) error {
				<-stuck
				return nil
			},
		}
		f := r.openForward(t, tunnel)
		good, bad := openConnection(t, f, 80), openConnection(t, f, 81)
		go func() { // writes until the connection is reset
			for b := make([]byte, 16<<10); ; {
				if _, err := bad.Write(b); err != nil {
					return
				}
			}
		}()
		for range 20 {
			_, err := good.Write([]byte("ping"))
			require.NoError(t, err)
			b := make([]byte, 4)
			_, err = io.ReadFull(good, b)
			require.NoError(t, err)
		}
		got, err := io.ReadAll(bad)
		require.NoError(t, err)
		assert.Empty(t, got)
	})
}

// Forwarded data arrives complete and does not stay in memory. NODEAGENT_SOAK=1 sends 1 GiB.
func TestForwardLargeData(t *testing.T) {
	size := int64(24 << 20)
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		size = 1 << 30
	}
	runWithTunnels(t, streaming.Options{}, func(t *testing.T, r *testNode, tunnel bool) {
		f := r.openForward(t, tunnel)
		c := openConnection(t, f, 80)
		sent, received := sha256.New(), sha256.New()
		var tasks sync.WaitGroup
		tasks.Go(func() {
			b := make([]byte, 64<<10)
			for at := int64(0); at < size; at += int64(len(b)) {
				streamtest.FillPattern(at, b)
				sent.Write(b)
				if _, err := c.Write(b); !assert.NoError(t, err) {
					break
				}
			}
			_ = c.CloseWrite()
		})
		var most uint64
		stop := make(chan struct{})
		tasks.Go(func() { most = peakMemory(stop) })
		n, err := io.Copy(received, c)
		close(stop)
		tasks.Wait()
		require.NoError(t, err)
		assert.Equal(t, size, n)
		assert.Equal(t, sent.Sum(nil), received.Sum(nil))
		assert.Less(t, most, uint64(20<<20), "memory of runtime and node")
	})
}

// peakMemory returns the maximum of the live heap until stop is closed.
func peakMemory(stop <-chan struct{}) (most uint64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		runtime.GC()
		metrics.Read(live)
		most = max(most, live[0].Value.Uint64())
		select {
		case <-stop:
			return most
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// A WebSocket has a data and an error channel for each port, which start with the number of the port.
func TestForwardByWebSocketChannels(t *testing.T) {
	for _, mode := range modes {
		for _, protocol := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				r := newTestNode(t, mode, streaming.Options{})
				r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{
					81: func(io.ReadWriteCloser) error { return io.ErrNoProgress },
				}
				p, err := streamtest.ForwardPorts(t.Context(), r.http.URL+"/portforward/uid?port=80&port=81,8080", protocol)
				require.NoError(t, err)
				defer p.Close()
				require.NoError(t, p.Send(0, []byte("first")))
				require.NoError(t, p.Send(4, bytes.Repeat([]byte("third"), 20000)))
				got := map[byte][]byte{}
				require.NoError(t, p.Receive(func(number byte, b []byte) bool {
					got[number] = append(got[number], b...)
					return len(got[0]) < 7 || len(got[3]) < 10 || len(got[4]) < 100002
				}))
				for i, port := range []uint16{80, 80, 81, 81, 8080, 8080} {
					require.GreaterOrEqual(t, len(got[byte(i)]), 2, i)
					assert.Equal(t, port, binary.LittleEndian.Uint16(got[byte(i)]), i)
				}
				assert.Equal(t, "first", string(got[0][2:]))
				assert.Equal(t, bytes.Repeat([]byte("third"), 20000), got[4][2:])
				assert.Contains(t, string(got[3][2:]), "error forwarding port 81 to pod uid")
			})
		}
	}
}
