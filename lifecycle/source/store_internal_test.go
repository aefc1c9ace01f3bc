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

// What fits alone may not fit beside the others. What the others take is made up here, because 300,000 values take long to read.
func TestHandlerHasRoom(t *testing.T) {
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
	h.look()
	one := h.view.kept
	assert.Positive(t, one.values)
	h.view.kept = maxCost().minus(one) // with room for one more
	h.mu.Unlock()

	status, text = put("b", "1")
	assert.Equal(t, 201, status, text)
	status, text = put("c", "1")
	assert.Equal(t, 507, status)
	assert.Contains(t, text, "manifest c: the manifests have more than 300000 values or 33554432 bytes together")
	status, text = put("a", "2")
	assert.Equal(t, 200, status, "it takes the place of what it replaces: %s", text)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/b", nil))
	assert.Equal(t, 204, w.Code)
	status, text = put("c", "1")
	assert.Equal(t, 201, status, text)
}
