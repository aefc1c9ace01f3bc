// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi"
)

func TestParseLogOptions(t *testing.T) {
	for query, status := range map[string]int{
		"": 0, "follow": 0, "tail=all&tailLines=x": 0, "sinceSeconds=1": 0, "stream=Stdout": 0, "sinceTime=2026-01-02T03:04:05Z": 0,
		"tailLines=-1": 422, "limitBytes=0": 422, "sinceSeconds=0": 422, "sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z": 422,
		"stream=x": 422, "stream=Stdout&tailLines=1": 422, "tail=x": 400, "tailLines=x": 400, "limitBytes=1.5": 400, "sinceTime=x": 400,
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		o, got, err := nodeapi.LogOptions(values)
		assert.Equal(t, status, got, query)
		assert.Equal(t, status == 0, err == nil, query)
		assert.Equal(t, status == 0, o != nil, query)
	}
}

func TestParseVerbosity(t *testing.T) {
	for verbosity, want := range map[string]slog.Level{
		"0": slog.LevelInfo, "2": slog.LevelInfo, "3": slog.LevelDebug, "4": slog.LevelDebug, "5": slog.LevelDebug - 1, "4000000000": slog.LevelDebug - 100,
	} {
		level, err := nodeapi.LevelOf(verbosity)
		require.NoError(t, err)
		assert.Equal(t, want, level, verbosity)
	}
	for _, verbosity := range []string{"", "-1", "x", "99999999999"} {
		_, err := nodeapi.LevelOf(verbosity)
		assert.Error(t, err, verbosity)
	}
}

// No path or query makes a handler panic, and the path of a container never leads to another container.
func FuzzRequests(f *testing.F) {
	for _, target := range []string{"/containerLogs/ns/p/c?tailLines=1", "/pods", "/%2e%2e/pods", "/logs/..%2f", "/exec//p", "*", "/healthz?exclude=%00"} {
		f.Add("GET", target)
	}
	o := &oneContainer{log: "/nonexistent"}
	s, err := nodeapi.New(nodeapi.Options{Insecure: true, Pods: o, Runtime: o, LogLevel: new(slog.LevelVar), Flags: map[string]string{}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL, r.RequestURI = method, u, target
		for _, h := range []http.Handler{s.Handler(), s.ReadOnly(), s.Healthz()} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code >= 500 && w.Code != http.StatusInternalServerError {
				t.Fatalf("%s %q: %d", method, target, w.Code)
			}
		}
	})
}
