// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"net/http"
)

// serveSummary responds with the resource usage of the node and its pods, or only CPU, memory and swap. Source: handleSummary in
// pkg/kubelet/server/stats/handler.go.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request, _ params) {
	if err := r.ParseForm(); err != nil {
		writeText(w, http.StatusInternalServerError, "Internal Error: parse form failed: "+err.Error())
		return
	}
	measure := s.o.Summary.Summary
	if only := r.Form["only_cpu_and_memory"]; len(only) == 1 && only[0] == "true" {
		measure = s.o.Summary.CPUAndMemory
	}
	summary, err := measure(r.Context())
	switch {
	case summary == nil && err == nil:
		w.WriteHeader(http.StatusOK)
		return
	case summary == nil:
		s.o.Logger.Warn("summary failed", "error", err)
		writeText(w, http.StatusInternalServerError, "Internal Error: "+err.Error())
		return
	case err != nil:
		s.o.Logger.Info("summary is incomplete", "error", err)
	}
	body, err := json.MarshalIndent(summary, "", " ")
	if err != nil {
		writeText(w, http.StatusInternalServerError, "Internal Error: "+err.Error())
		return
	}
	writeJSON(w, body)
}
