// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device/plugin"
)

// A Register call of more than 16 KiB is refused, and the server continues.
func TestLargeRegisterIsRefused(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	newFake().serve(t, n.path("p.sock"))
	err := n.request(t.Context(), newRequest("vendor.example/"+strings.Repeat("x", 1<<20), "p.sock"))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "received message larger than max")
	require.NoError(t, n.register(t.Context(), "p.sock"))
	n.await(t).awaitDevices(t, "gpu0")
}

// Clients that keep idle connections to kubelet.sock lock out no plugin.
func TestIdleConnectionsLockOutNoPlugin(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	newFake().serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock")) // the server is running
	n.await(t).awaitDevices(t, "gpu0")
	for range 256 {
		c, err := net.Dial("unix", n.path("kubelet.sock"))
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // with empty settings
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 9)) // the header of the settings of the server
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // idle connections are closed after a minute
	defer cancel()
	require.NoError(t, n.register(ctx, "p.sock"))
	n.await(t).awaitDevices(t, "gpu0")
}

// A stream that ends at once is not opened again. The plugin may register again at any time.
func TestStreamEndsAtOnce(t *testing.T) {
	n := runHost(t, t.TempDir(), plugin.Options{})
	var streams atomic.Int64
	f := newFake()
	f.list = func(stream) error { streams.Add(1); return nil }
	f.serve(t, n.path("p.sock"))
	const registrations = 50
	for range registrations {
		require.NoError(t, n.register(t.Context(), "p.sock"))
		n.await(t).awaitClosed(t)
	}
	assert.EqualValues(t, registrations, streams.Load())
}

// dialHost returns a client of the registration API.
func (n *node) dialHost(t *testing.T) api.RegistrationClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.path("kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return api.NewRegistrationClient(conn)
}

// Registrations without end need no more and more memory or goroutines, and another plugin can register meanwhile. A million registrations with
// NODEAGENT_SOAK=1.
func TestRegistrationsWithoutEnd(t *testing.T) {
	count := 4_000
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		count = 1_000_000
	}
	n := runAllocator(t)
	n.connect(t, "vendor.example/flood", 1, func(*fakePlugin) {})
	listen(t, n.path("hung.sock")) // accepts no connection
	const invalid, again, hung = 0, 1, 2
	flood := func(from, to int) {
		var wg sync.WaitGroup
		for worker := range 8 {
			client := n.dialHost(t)
			wg.Go(func() {
				for i := from + worker; i < to; i += 8 {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					request := newRequest("vendor.example/flood", "vendor.example_flood")
					switch i / 8 % 3 {
					case invalid:
						request.ResourceName = fmt.Sprint(strings.Repeat("x", 10<<10), i)
					case again:
					case hung:
						cancel()
						ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
						request.Endpoint = "hung.sock"
					}
					_, _ = client.Register(ctx, request, grpc.WaitForReady(true))
					cancel()
				}
			})
		}
		wg.Wait()
	}
	flood(0, count/4)
	before, goroutines := heap(), runtime.NumGoroutine()
	flood(count/4, count)
	n.connect(t, "vendor.example/good", 1, func(*fakePlugin) {})
	n.awaitAllocatable(t, "vendor.example/flood", 1)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < goroutines+100 }, timeout, 10*tick)
	after := heap()
	t.Logf("heap %d KiB, then %d KiB; %d goroutines, then %d", before>>10, after>>10, goroutines, runtime.NumGoroutine())
	assert.Less(t, after, before+16<<20)
}

// A plugin that registers 10,000 resources gets an error for each above the limit. A plugin of an existing resource still connects.
func TestPluginOf10000Resources(t *testing.T) {
	t.Parallel()
	skipWithFewFiles(t)
	n := runAllocator(t)
	f := newFake().serve(t, n.path("many.sock"))
	var refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		client := n.dialHost(t)
		wg.Go(func() {
			for i := worker; i < 10_000; i += 8 {
				name := fmt.Sprint("vendor.example/", i)
				_, err := client.Register(t.Context(), newRequest(name, "many.sock"), grpc.WaitForReady(true))
				if err != nil {
					refused.Add(1)
					assert.ErrorContains(t, err, "connect device plugin of resource "+name+" at socket "+n.path("many.sock")+": 1024 device plugins are connected or connecting")
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 10_000-1024, refused.Load())
	f.stop()

	known := n.Resources()
	require.Len(t, known, 1024)
	newFake().serve(t, n.path("good.sock"))
	require.Eventually(t, func() bool { // the connections have ended
		return n.request(t.Context(), newRequest(known[0].Name, "good.sock")) == nil
	}, timeout, 10*tick)
	n.awaitAllocatable(t, known[0].Name, 1)
	require.ErrorContains(t, n.request(t.Context(), newRequest("vendor.example/new", "good.sock")),
		`connect device plugin for resource "vendor.example/new": there are 1024 resources, and no more are allowed`)
}
