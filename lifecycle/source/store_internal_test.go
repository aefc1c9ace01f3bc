// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A manifest within its own limit may exceed the limit of the directory. The test fakes the cost of the other manifests,
// because reading 300,000 values is slow.
func TestCheckRoomLimitsFilesAndCost(t *testing.T) {
	h := NewHandler(t.TempDir(), HandlerOptions{})
	put := func(name, image string) (int, string) {
		w := httptest.NewRecorder()
		body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/"+name, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	status, text := put("a", "1")
	assert.Equal(t, 201, status, text)
	h.mu.Lock()
	h.rescanDir()
	one := h.view.totalCost
	assert.Positive(t, one.values)
	h.view.totalCost = maxCost().subtractCost(one) // leaves capacity for one manifest
	h.mu.Unlock()

	status, text = put("b", "1")
	assert.Equal(t, 201, status, text)
	status, text = put("c", "1")
	assert.Equal(t, 507, status)
	assert.Contains(t, text, "manifest c: the manifests have more than 300000 values or 33554432 bytes together")
	status, text = put("a", "2")
	assert.Equal(t, 200, status, "a replacement uses the capacity of the replaced manifest: %s", text)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/b", nil))
	assert.Equal(t, 204, w.Code)
	status, text = put("c", "1")
	assert.Equal(t, 201, status, text)
}
