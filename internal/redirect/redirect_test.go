// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package redirect_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/redirect"
)

func TestSameHost(t *testing.T) {
	first := httptest.NewRequest(http.MethodGet, "http://10.0.0.7:8080/healthz", nil)
	check := func(target string, requests int) error {
		via := make([]*http.Request, requests)
		for i := range via {
			via[i] = first
		}
		return redirect.SameHost(httptest.NewRequest(http.MethodGet, target, nil), via)
	}
	require.NoError(t, check("https://10.0.0.7:8443/other", 1))
	require.NoError(t, check("http://10.0.0.7/", 9))
	require.EqualError(t, check("http://10.0.0.7/", 10), "stopped after 10 redirects")
	require.ErrorIs(t, check("http://10.0.0.8:8080/healthz", 1), http.ErrUseLastResponse)
	require.ErrorIs(t, check("http://10.0.0.8:8080/healthz", 10), http.ErrUseLastResponse)
}
