// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func alwaysHealthy(context.Context) error { return nil }

// allChecks returns all health checks: log and syncloop, which the kubelet also has, and those in Options.HealthChecks.
// Source: InstallAuthNotRequiredHandlers in pkg/kubelet/server/server.go.
func (s *Server) allChecks() []HealthCheck {
	syncLoop := s.o.SyncLoop
	if syncLoop == nil {
		syncLoop = alwaysHealthy
	}
	return slices.Concat([]HealthCheck{{"log", alwaysHealthy}, {"syncloop", syncLoop}}, s.o.HealthChecks)
}

// addHealthChecks adds the page /healthz, which runs all checks, and a page for each, such as /healthz/ping. Source:
// InstallPathHandler in k8s.io/apiserver/pkg/server/healthz.
func (s *Server) addHealthChecks(r *router, extra []HealthCheck) {
	all := slices.Concat([]HealthCheck{{"ping", alwaysHealthy}}, extra)
	r.addHandler("/healthz", s.withStallTimeout(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.serveHealth(w, req, all) })))
	for _, c := range all {
		r.addHandler("/healthz/"+c.Name, s.withStallTimeout(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if err := c.Check(req.Context()); err != nil {
				http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, "ok")
		})))
	}
}

// serveHealth runs all checks, except those in the query parameter exclude.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request, all []HealthCheck) {
	query := r.URL.Query()
	var lines strings.Builder
	failed := false
	unknown := slices.Clone(query["exclude"])
	for _, c := range all {
		if slices.Contains(query["exclude"], c.Name) {
			unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == c.Name })
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := c.Check(r.Context()); err != nil {
			failed = true
			// The error may be confidential: only the page of the check, such as /healthz/ping, has it.
			s.o.Logger.Warn("health check failed", "check", c.Name, "error", err)
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		unknown = slices.Compact(unknown)
		for i, name := range unknown {
			unknown[i] = strconv.Quote(name)
		}
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	if failed {
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !query.Has("verbose") {
		_, _ = io.WriteString(w, "ok")
		return
	}
	_, _ = io.WriteString(w, lines.String()+"healthz check passed\n")
}

// validateChecks returns an error if a check has no function, or a name that is not unique or no path element.
func validateChecks(all []HealthCheck) error {
	taken := []string{"ping", "log", "syncloop"}
	for i, c := range all {
		switch {
		case c.Check == nil:
			return fmt.Errorf("Checks[%d].Check: required", i)
		case c.Name == "" || url.PathEscape(c.Name) != c.Name || strings.ContainsAny(c.Name, "{}"):
			return fmt.Errorf("Checks[%d].Name: %q must be a path element", i, c.Name)
		case slices.Contains(taken, c.Name):
			return fmt.Errorf("Checks[%d].Name: there is another check %s", i, c.Name)
		}
		taken = append(taken, c.Name)
	}
	return nil
}
