// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// network has connections in memory, which the test can cut without closing them.
type network struct {
	accepted chan net.Conn
	closed   chan struct{}
	hang     atomic.Bool // the dial hangs, as with a DNS server without a response
	dials    atomic.Int32

	mu    sync.Mutex // guards conns
	conns []*cuttableConn
}

// newNetwork serves a handler until the test ends.
func newNetwork(t *testing.T, handler http.Handler) *network {
	t.Helper()
	n := &network{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(n) })
	t.Cleanup(func() {
		n.cutAll()
		_ = server.Close()
		wg.Wait()
	})
	return n
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accepted:
		return c, nil
	case <-n.closed:
		return nil, io.EOF
	}
}

func (n *network) Close() error {
	close(n.closed)
	return nil
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.dials.Add(1)
	if n.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	c := &cuttableConn{Conn: ours}
	n.mu.Lock()
	n.conns = append(n.conns, c)
	n.mu.Unlock()
	select {
	case n.accepted <- theirs:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cutAll cuts all existing connections.
func (n *network) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.dead.Store(true)
	}
}

// cuttableConn is a connection that accepts and loses all data once it is cut.
type cuttableConn struct {
	net.Conn
	dead atomic.Bool
}

func (m *cuttableConn) Write(b []byte) (int, error) {
	if m.dead.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// A dead connection costs one attempt. The second attempt uses a new connection, and the lease does not expire.
func TestReportAndLeaseSurviveDeadConnection(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		require.NoError(t, server.Put(node("n")))
		n := newNetwork(t, server)
		l, err := heartbeat.NewLease(&rest.Config{Host: "http://server", Dial: n.dial}, heartbeat.LeaseOptions{NodeName: "n", Rand: half})
		require.NoError(t, err)
		defer run(t, l.Run)()
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, n.dials.Load())
		for i := range 5 {
			n.cutAll()
			worst := time.Duration(0)
			for range 40 {
				time.Sleep(time.Second)
				lease, _ := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
				worst = max(worst, time.Since(lease.Spec.RenewTime.Time))
			}
			assert.Less(t, worst, 22*time.Second, "at most a period of 10.4 s and an attempt")
			assert.EqualValues(t, i+2, n.dials.Load())
		}
	})
}

// A hanging DNS server or host delays a request by at most the timeout of one attempt.
func TestHungDialEndsAfterOneAttempt(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		require.NoError(t, server.Put(node("n")))
		n := newNetwork(t, server)
		n.hang.Store(true)
		l, err := heartbeat.NewLease(&rest.Config{Host: "http://server", Dial: n.dial}, heartbeat.LeaseOptions{NodeName: "n", Rand: half})
		require.NoError(t, err)
		defer run(t, l.Run)()
		time.Sleep(5 * time.Minute)
		assert.LessOrEqual(t, n.dials.Load(), int32(35))
		n.hang.Store(false)
		time.Sleep(18 * time.Second)
		_, leased := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
		assert.True(t, leased)
	})
}
