// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// handler adapts a Server to streamtest.Handler.
type handler struct{ *streaming.Server }

func (h handler) Exec(w http.ResponseWriter, r *http.Request, id string, cmd []string, o cri.StreamOptions) {
	h.ServeExec(w, r, id, cmd, o)
}

func (h handler) Attach(w http.ResponseWriter, r *http.Request, id string, o cri.StreamOptions) {
	h.ServeAttach(w, r, id, o)
}

func (h handler) PortForward(w http.ResponseWriter, r *http.Request, id string, ports []int32) {
	h.ServePortForward(w, r, id, ports)
}

// podOf returns the pod UID with which a container ID starts.
func podOf(id string) string {
	uid, _, _ := strings.Cut(id, "/")
	return uid
}

// testNode is a streaming server in front of a runtime.
type testNode struct {
	*streaming.Server

	runtime  *streamtest.Runtime
	streamer *streamtest.Streamer // nil if the runtime runs sessions itself
	http     *httptest.Server

	mu    sync.Mutex
	ended []error
}

// timeout is how long a test waits for an event that is immediate on an idle machine.
const timeout = time.Minute

// modes are the two kinds of runtimes.
var modes = []string{"runner", "streamer"}

// newTestNode returns a node with a runtime of the given mode.
func newTestNode(t testing.TB, mode string, o streaming.Options) *testNode {
	t.Helper()
	r := &testNode{runtime: &streamtest.Runtime{}}
	if mode == "streamer" {
		inner, err := streaming.New(streaming.Options{Runner: r.runtime, BlockedForwardTimeout: o.BlockedForwardTimeout})
		require.NoError(t, err)
		r.streamer = streamtest.Serve(handler{inner})
		t.Cleanup(func() {
			inner.Close()
			r.streamer.Close()
		})
		o.Streamer = r.streamer
	} else {
		o.Runner = r.runtime
	}
	if o.Pods == nil {
		o.PodOf = podOf
	}
	ended := o.Hooks.SessionFinished
	o.Hooks.SessionFinished = func(s streaming.Session, err error) {
		r.mu.Lock()
		r.ended = append(r.ended, err)
		r.mu.Unlock()
		if ended != nil {
			ended(s, err)
		}
	}
	var err error
	r.Server, err = streaming.New(o)
	require.NoError(t, err)
	r.http = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() {
		r.Close()
		r.http.Close()
	})
	return r
}

// serve routes requests as package nodeapi does: the path names the container.
func (r *testNode) serve(w http.ResponseWriter, req *http.Request) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if kind == "portforward" {
		ports, err := streaming.ParsePorts(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		handler{r.Server}.PortForward(w, req, id, ports)
		return
	}
	o, err := streaming.ParseStreams(req.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if kind == "attach" {
		handler{r.Server}.Attach(w, req, id, o)
		return
	}
	handler{r.Server}.Exec(w, req, id, req.URL.Query()["command"], o)
}

// sessionErrors returns the errors with which the sessions finished.
func (r *testNode) sessionErrors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.ended...)
}

// sessionURL returns the URL of a session.
func (r *testNode) sessionURL(kind, id string, c streamtest.Command, cmd ...string) string {
	q := url.Values{"command": cmd}
	for name, on := range map[string]bool{
		"input": c.Stdin != nil, "output": c.Stdout != nil, "error": c.Stderr != nil, "tty": c.TTY,
	} {
		if on {
			q.Set(name, "1")
		}
	}
	return r.http.URL + "/" + kind + "/" + id + "?" + q.Encode()
}

// result is the output and status of a command for the client.
type result struct {
	stdout, stderr bytes.Buffer
	fault          string
	err            error
}

// runExec runs a command to its end.
func (r *testNode) runExec(t testing.TB, protocol string, c streamtest.Command, cmd ...string) *result {
	t.Helper()
	var got result
	c.Protocol = protocol
	if c.Stdout == nil {
		c.Stdout = &got.stdout
	}
	if !c.TTY {
		c.Stderr = &got.stderr
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	c.URL = r.sessionURL("exec", "uid/c", c, cmd...)
	got.fault, got.err = c.Run(ctx)
	return &got
}

// asJSON reports whether a protocol sends the status of a command as JSON.
func asJSON(protocol string) bool {
	return strings.Contains(protocol, "v4") || strings.Contains(protocol, "v5")
}

// eventually polls a condition until it is true.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(timeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// awaitNoSessions waits until no session is left, and returns the numbers of goroutines and descriptors.
func awaitNoSessions(t testing.TB, r *testNode) (goroutines, descriptors int) {
	t.Helper()
	require.True(t, eventually(func() bool { return len(r.Streams()) == 0 && r.runtime.Running.Load() == 0 }), "no session is left")
	entries, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		descriptors = len(entries)
	}
	return runtime.NumGoroutine(), descriptors
}

// checkNoLeaks waits until the numbers of goroutines and descriptors are as before.
func checkNoLeaks(t testing.TB, r *testNode, goroutines, descriptors int) {
	t.Helper()
	var g, d int
	if !eventually(func() bool {
		g, d = awaitNoSessions(t, r)
		return g <= goroutines && d <= descriptors
	}) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines and %d descriptors, before %d and %d:\n%s", g, d, goroutines, descriptors,
			buf[:runtime.Stack(buf, true)])
	}
}
