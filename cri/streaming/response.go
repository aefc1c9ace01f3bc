// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// retryAfter is the value of the header Retry-After, in seconds, if a session is refused because of a limit. The kubelet sends
// the same value.
const retryAfter = 60

// writeRefusal sends an error as the HTTP response to an upgrade request.
func writeRefusal(w http.ResponseWriter, err error) {
	var r *upgrade.Refusal
	if !errors.As(err, &r) {
		r = newRefusal(err)
	}
	maps.Copy(w.Header(), r.Header)
	if !r.FromRuntime {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(r.Code)
	_, _ = io.WriteString(w, r.Text)
}

// newRefusal returns the HTTP response for an error. Errors of the runtime get the kubelet's status codes, such as 404 for
// cri.ErrNotFound.
func newRefusal(err error) *upgrade.Refusal {
	r := &upgrade.Refusal{Code: http.StatusInternalServerError, Text: err.Error()}
	switch {
	case errors.Is(err, cri.ErrNotFound):
		r.Code = http.StatusNotFound
	case errors.Is(err, ErrLimit), errors.Is(err, cri.ErrTooMany):
		r.Code, r.Header = http.StatusTooManyRequests, http.Header{"Retry-After": {strconv.Itoa(retryAfter)}}
	case errors.Is(err, ErrShutdown):
		r.Code = http.StatusServiceUnavailable
	}
	return r
}
