// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle/source"
)

func TestFetchKeepsPodsAfterErrors(t *testing.T) {
	var body string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer x", r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	h := source.NewHTTP(server.URL, source.HTTPOptions{Header: http.Header{"Authorization": {"Bearer x"}}})
	fetch := func(code int, content string) source.Update {
		status, body = code, content
		return h.Fetch(t.Context(), time.Now())
	}
	check := func(u source.Update, pods string, complete bool, errs ...string) {
		t.Helper()
		assert.Equal(t, pods, images(u))
		assert.Equal(t, complete, !u.Incomplete)
		assert.Equal(t, errs, errorTexts(u, server.URL))
	}

	check(fetch(503, ""), "", false, server.URL+": get manifest: server returned 503 Service Unavailable")
	u := fetch(200, manifest("a", "1")+"---\n"+manifest("b", "1"))
	check(u, "a=1 b=1", true)
	assert.Equal(t, "http", u.Pods[0].Annotations[source.AnnotationSource])
	assert.Same(t, u.Pods[0], fetch(200, manifest("a", "1")).Pods[0])
	check(fetch(200, "kind: {"), "a=1", true, server.URL+":1: parse YAML: did not find expected node content")
	check(fetch(200, "kind: {"), "a=1", true, server.URL+":1: parse YAML: did not find expected node content")
	check(fetch(404, "x"), "a=1", true, server.URL+": get manifest: server returned 404 Not Found",
		server.URL+":1: parse YAML: did not find expected node content")
	check(fetch(200, manifest("a", "1")), "a=1", true)
	check(fetch(200, ""), "a=1", true, server.URL+": read manifest: empty response; serve an empty PodList to remove all pods")
	check(fetch(200, strings.Repeat("#", 10<<20+1)), "a=1", true, server.URL+": read manifest: more than 10485760 bytes")
	check(fetch(200, `{"apiVersion":"v1","kind":"PodList","items":[]}`), "", true)
}

func TestFetchHidesPasswords(t *testing.T) {
	h := source.NewHTTP("http://user:secret@127.0.0.1:1/pods", source.HTTPOptions{})
	u := h.Fetch(t.Context(), time.Now())
	require.Len(t, u.Errs, 1)
	assert.Contains(t, u.Errs[0].Error(), "http://user:xxxxx@127.0.0.1:1/pods: get manifest: dial tcp 127.0.0.1:1: ")
}

// roundTripFunc is an HTTP transport that calls a function for the response body.
type roundTripFunc func(*http.Request) (string, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := f(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewBufferString(body))}, nil
}

func TestRunFetchesEveryPeriodAndReportsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, requests := time.Now(), 0
		client := &http.Client{Transport: roundTripFunc(func(r *http.Request) (string, error) {
			requests++
			switch {
			case requests <= 3:
				return manifest("a", "1"), nil
			case requests == 4:
				<-r.Context().Done() // the server hangs
				return "", r.Context().Err()
			case requests == 5:
				return "", errors.New("connection refused")
			case requests == 6:
				return manifest("a", "2"), nil
			}
			cancel()
			return manifest("a", "3"), nil
		})}

		h := source.NewHTTP("http://server", source.HTTPOptions{Client: client})
		var reported []string
		require.NoError(t, h.Run(ctx, func(u source.Update) {
			reported = append(reported, time.Since(start).String()+" "+images(u))
			for _, e := range u.Errs {
				reported = append(reported, e.Error())
			}
		}))

		assert.Equal(t, []string{
			"0s a=1",
			"1m10s a=1", "http://server: get manifest: context deadline exceeded",
			"1m30s a=1", "http://server: get manifest: connection refused",
			"1m50s a=2",
		}, reported)
	})
}
