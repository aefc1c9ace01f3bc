// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeapi_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi"
)

// No path leads out of the log directory.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"syslog", "../etc/passwd", "dir/passwd", "containers/p_ns_c.log", "updir/etc/passwd", "x\x00", "a//b/../..", "chain"} {
		f.Add(path)
	}
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: newLogDir(f), AllowQueries: true})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, path string) {
		r := httptest.NewRequest(http.MethodGet, "/logs/", nil)
		r.URL.Path = "/logs/" + path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if strings.Contains(w.Body.String(), secret) {
			t.Fatalf("%q leads out of the directory", path)
		}
	})
}

// Symbolic links are replaced while they are checked. With NODEAGENT_SOAK the test takes two minutes.
func TestReplacedLinksDoNotLeadOutOfLogDirectory(t *testing.T) {
	span := 500 * time.Millisecond
	if os.Getenv("NODEAGENT_SOAK") != "" {
		span = 2 * time.Minute
	}
	dir := newLogDir(t)
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: dir, AllowQueries: true, Journal: "/nonexistent"})
	require.NoError(t, err)
	end := time.Now().Add(span)
	var asked, served, escapes atomic.Int64
	goesOn := func() bool { return time.Now().Before(end) || served.Load() == 0 } // with at least one response, although a busy machine may start no goroutine in time
	var group sync.WaitGroup
	targets := []string{"../etc", "pods", filepath.Join(filepath.Dir(dir), "etc"), filepath.Join(dir, "pods"), "..", "proxy", "swap"}
	group.Go(func() {
		swap, next := filepath.Join(dir, "swap"), filepath.Join(dir, "next")
		for i := 0; goesOn(); i++ {
			_ = os.Remove(next)
			if i%5 == 0 {
				_ = os.Mkdir(next, 0o755)
				_ = os.RemoveAll(swap)
			} else {
				_ = os.Symlink(targets[rand.IntN(len(targets))], next)
			}
			_ = os.Rename(next, swap)
		}
	})
	for range 3 {
		group.Go(func() {
			for goesOn() {
				for _, path := range []string{
					"/logs/swap/passwd", "/logs/swap/etc/passwd", "/logs/swap/proxy.log", "/logs/swap/swap/etc/passwd", "/logs/swap/",
					"/logs/?query=swap/passwd", "/logs/?query=swap/etc/passwd",
				} {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
					asked.Add(1)
					if w.Code == http.StatusOK {
						served.Add(1)
					}
					if body := w.Body.String(); strings.Contains(body, secret) || strings.Contains(body, "passwd</a>") {
						escapes.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d requests, %d of them served something, %d escapes", asked.Load(), served.Load(), escapes.Load())
	require.Zero(t, escapes.Load())
	require.Positive(t, served.Load(), "some request must be served")
}
