// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/internal/verbosity"
)

// serveProfile responds with the profiles of [net/http/pprof], at the paths below /debug/pprof/.
func serveProfile(w http.ResponseWriter, r *http.Request, _ params) {
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// serveLevel sets the log level of the agent to the klog verbosity in the request body. Source: StringFlagPutHandler in
// k8s.io/apiserver/pkg/server/routes.
func (s *Server) serveLevel(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, line string) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, line+"\n")
	}
	if r.Method != http.MethodPut {
		answer(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		answer(http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	level, err := parseVerbosity(string(body))
	if err != nil {
		answer(http.StatusBadRequest, err.Error())
		return
	}
	s.o.LogLevel.Set(level)
	answer(http.StatusOK, "successfully set klog.logging.verbosity to "+string(body))
}

// parseVerbosity returns the log level for the text of a verbosity of klog.
func parseVerbosity(text string) (slog.Level, error) {
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, err
	}
	return verbosity.Level(v), nil
}

// serveSettings responds with the configuration of the agent in JSON. Source: package configz of k8s.io/component-base.
func (s *Server) serveSettings(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(map[string]any{"kubeletconfig": s.o.Settings()})
	if err != nil {
		http.Error(w, "error marshaling json: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	writeJSON(w, body)
}
