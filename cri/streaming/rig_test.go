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

// handler serves sessions of a server, as package streamtest wants them.
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

// podOf knows containers whose ID begins with the UID of their pod.
func podOf(id string) string {
	uid, _, _ := strings.Cut(id, "/")
	return uid
}

// rig is a node: a server of sessions in front of a runtime.
type rig struct {
	*streaming.Server

	runtime  *streamtest.Runtime
	streamer *streamtest.Streamer // nil: the runtime runs sessions itself
	http     *httptest.Server

	mu    sync.Mutex
	ended []error
}

// timeout is how long a test waits for what comes at once where the machine has time.
const timeout = time.Minute

// modes are the two kinds of runtimes.
var modes = []string{"runner", "streamer"}

// newRig returns a node. Options may lack the runtime.
func newRig(t testing.TB, mode string, o streaming.Options) *rig {
	t.Helper()
	r := &rig{runtime: &streamtest.Runtime{}}
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

// serve is what package nodeapi is to these tests: paths name the container.
func (r *rig) serve(w http.ResponseWriter, req *http.Request) {
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

// errs returns how the sessions have ended.
func (r *rig) errs() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.ended...)
}

// url returns the address of a session.
func (r *rig) url(kind, id string, c streamtest.Command, cmd ...string) string {
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

// result is what a client got of a command.
type result struct {
	stdout, stderr bytes.Buffer
	fault          string
	err            error
}

// exec runs a command to its end.
func (r *rig) exec(t testing.TB, protocol string, c streamtest.Command, cmd ...string) *result {
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
	c.URL = r.url("exec", "uid/c", c, cmd...)
	got.fault, got.err = c.Run(ctx)
	return &got
}

// asJSON reports whether a protocol says how a command ended in JSON.
func asJSON(protocol string) bool {
	return strings.Contains(protocol, "v4") || strings.Contains(protocol, "v5")
}

// soon waits for a condition, in this goroutine.
func soon(condition func() bool) bool {
	for end := time.Now().Add(timeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// settled waits until no session is left, and returns how many goroutines and descriptors there are.
func settled(t testing.TB, r *rig) (goroutines, descriptors int) {
	t.Helper()
	require.True(t, soon(func() bool { return len(r.Streams()) == 0 && r.runtime.Running.Load() == 0 }), "a session is left")
	entries, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		descriptors = len(entries)
	}
	return runtime.NumGoroutine(), descriptors
}

// sameAsBefore waits until there are as many goroutines and descriptors as there were.
func sameAsBefore(t testing.TB, r *rig, goroutines, descriptors int) {
	t.Helper()
	var g, d int
	if !soon(func() bool {
		g, d = settled(t, r)
		return g <= goroutines && d <= descriptors
	}) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines and %d descriptors, before %d and %d:\n%s", g, d, goroutines, descriptors,
			buf[:runtime.Stack(buf, true)])
	}
}
