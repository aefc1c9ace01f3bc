// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodeapi"
)

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(body)
}

func TestServerWithoutOptionalPartsResponds404(t *testing.T) {
	s, err := nodeapi.New(nodeapi.Options{Insecure: true, Pods: nodeapi.PodsFunc(func() []*corev1.Pod { return nil })})
	require.NoError(t, err)
	for _, tc := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/healthz/ping", 200, "ok"},
		{"GET", "/healthz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"},
		{"GET", "/pods", 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}` + "\n"},
		{"GET", "/pods/x", 404, "404: Page Not Found"},
		{"HEAD", "/pods", 405, "405: Method Not Allowed"},
		{"GET", "/stats/summary", 404, "404 page not found\n"},
		{"GET", "/logs/", 405, "logs endpoint is disabled.\n"},
		{"GET", "/debug/pprof/", 405, "profiling endpoint is disabled.\n"},
	} {
		code, body := get(t, s.Handler(), tc.method, tc.path)
		assert.Equal(t, tc.code, code, "%s %s", tc.method, tc.path)
		assert.Equal(t, tc.body, body, "%s %s", tc.method, tc.path)
	}
}
