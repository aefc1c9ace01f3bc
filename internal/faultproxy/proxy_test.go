// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/faultproxy"
)

// rig is a server that echoes request lines, a proxy in front of it, and a client of the proxy.
type rig struct {
	*faultproxy.Proxy
	t      *testing.T
	served atomic.Int32
	client *http.Client
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t}
	server := httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	own := server.TLS.Certificates[0]
	r.Proxy = faultproxy.Start(t, faultproxy.Options{Target: server.URL, Roots: roots, Server: own, Client: own})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport}
	return r
}

// serve responds like an API server: it keeps a watch open until its request is canceled, and returns the request line of
// all other requests.
func (r *rig) serve(w http.ResponseWriter, req *http.Request) {
	r.served.Add(1)
	if req.URL.Query().Get("watch") == "true" {
		fmt.Fprintln(w, "begun")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		return
	}
	fmt.Fprint(w, req.Method, " ", req.URL.Path, " ", req.Header.Get("Authorization"))
}

// send sends a request for path and returns the response, or an error after a time limit.
func (r *rig) send(method, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, r.URL()+path, http.NoBody)
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer secret")
	return r.client.Do(req)
}

func (r *rig) readBody(method, path string) string {
	r.t.Helper()
	resp, err := r.send(method, path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return string(text)
}

const (
	pathStatus = "/api/v1/namespaces/shop/pods/web/status"
	pathNodes  = "/api/v1/nodes"
)

// A request is forwarded unchanged except for its credentials, and is counted by its verb and resource.
func TestProxyForwardsAndCountsRequests(t *testing.T) {
	r := newRig(t)
	for path, m := range map[string]faultproxy.Match{
		pathStatus: {Verb: "patch", Resource: "pods", Subresource: "status"},
		"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1": {Verb: "patch", Resource: "leases", Subresource: "-"},
		"/api/v1/namespaces/shop": {Verb: "patch", Resource: "namespaces"},
		"/version":                {Verb: "PATCH", Resource: "-"},
	} {
		require.Equal(t, "PATCH "+path+" ", r.readBody(http.MethodPatch, path))
		require.Equal(t, 1, r.Count(m), "%s", path)
	}
	for method, verb := range map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodGet: "list"} {
		r.readBody(method, pathNodes)
		require.Equal(t, 1, r.Count(faultproxy.Match{Verb: verb, Resource: "nodes"}), verb)
	}
	require.Equal(t, 8, r.Count(faultproxy.Match{}))
}

// A fault applies only to matching requests, and until it is removed.
func TestInjectAppliesToMatchingRequests(t *testing.T) {
	r := newRig(t)
	remove := r.Inject(faultproxy.Fault{
		Match: faultproxy.Match{Verb: "patch", Namespace: "shop", Path: "/api/v1"}, Code: http.StatusTooManyRequests, RetryAfter: 3 * time.Second,
	})

	resp, err := r.send(http.MethodPatch, pathStatus)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "3", resp.Header.Get("Retry-After"))
	var status struct {
		Kind, Reason string
		Details      struct{ RetryAfterSeconds int }
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
	require.Equal(t, "Status TooManyRequests 3", fmt.Sprint(status.Kind, " ", status.Reason, " ", status.Details.RetryAfterSeconds))
	require.Zero(t, r.served.Load())
	require.Contains(t, r.readBody(http.MethodGet, pathStatus), "GET")

	remove()
	require.Contains(t, r.readBody(http.MethodPatch, pathStatus), "PATCH")

	remove = r.Inject(faultproxy.Fault{Cut: true})
	_, err = r.send(http.MethodGet, pathNodes) //nolint:bodyclose // There is none.
	require.Error(t, err)
	remove()
	r.Inject(faultproxy.Fault{Delay: 50 * time.Millisecond})
	began := time.Now()
	require.Contains(t, r.readBody(http.MethodGet, pathNodes), "GET")
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	r.Inject(faultproxy.Fault{Hang: true})
	r.requireHang()
}

// requireHang fails the test if the next request gets a response or reaches the server.
func (r *rig) requireHang() {
	r.t.Helper()
	served := r.served.Load()
	ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+pathNodes, http.NoBody)
	require.NoError(r.t, err)
	_, err = r.client.Do(req) //nolint:bodyclose // There is none.
	require.ErrorIs(r.t, err, context.DeadlineExceeded)
	require.Equal(r.t, served, r.served.Load())
}

// startWatch starts a watch. The returned function reads the next line and returns the error.
func (r *rig) startWatch() func() error {
	r.t.Helper()
	resp, err := r.send(http.MethodGet, pathNodes+"?watch=true")
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	require.NoError(r.t, err)
	require.Equal(r.t, "begun\n", line)
	return func() error {
		_, err := lines.ReadString('\n')
		return err
	}
}

// Watches are closed in the middle of their streams, and other requests continue.
func TestCutWatchesKeepsOtherRequests(t *testing.T) {
	r := newRig(t)
	rest := r.startWatch()
	require.Equal(t, 1, r.CutWatches())
	require.Error(t, rest())
	require.Equal(t, 1, r.Count(faultproxy.Match{Verb: "watch", Resource: "nodes"}))
	require.Contains(t, r.readBody(http.MethodGet, pathNodes), "GET")
}

// While the API server is unavailable, connections are refused, and existing ones are closed.
func TestSetUnavailableRefusesConnections(t *testing.T) {
	r := newRig(t)
	rest := r.startWatch()
	r.SetUnavailable(true)
	require.Error(t, rest())
	_, err := r.send(http.MethodGet, pathNodes) //nolint:bodyclose // There is none.
	require.Error(t, err)
	require.Equal(t, 2, r.Connections())
	r.SetUnavailable(false)
	require.Contains(t, r.readBody(http.MethodGet, pathNodes), "GET")
}

// Requests hang during a black hole. Existing connections stay unusable afterwards, and a new connection works.
func TestSetBlackHoleHangsRequests(t *testing.T) {
	r := newRig(t)
	require.Contains(t, r.readBody(http.MethodGet, pathNodes), "GET")
	r.SetBlackHole(true)
	r.requireHang()
	r.SetBlackHole(false)
	r.requireHang()
	other := r.client.Transport.(*http.Transport).Clone()
	t.Cleanup(other.CloseIdleConnections)
	r.client.Transport = other
	require.Contains(t, r.readBody(http.MethodGet, pathNodes), "GET")
}

func TestStartRefusesInvalidTarget(t *testing.T) {
	f := &fatal{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		faultproxy.Start(f, faultproxy.Options{Target: "http://127.0.0.1:1"})
	}()
	<-done
	require.Contains(t, f.message, "must be https://HOST:PORT")
}

// fatal is a testing.TB whose Fatal is recorded.
type fatal struct {
	testing.TB
	message string
}

func (f *fatal) Helper() {}
func (f *fatal) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}
