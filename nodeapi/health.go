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

func healthy(context.Context) error { return nil }

// allChecks returns the checks of the kubelet, and then those of the options. Source: InstallAuthNotRequiredHandlers in
// pkg/kubelet/server/server.go.
func (s *Server) allChecks() []HealthCheck {
	syncLoop := s.o.SyncLoop
	if syncLoop == nil {
		syncLoop = healthy
	}
	return slices.Concat([]HealthCheck{{"log", healthy}, {"syncloop", syncLoop}}, s.o.HealthChecks)
}

// checks adds /healthz with the check ping and others. Source: InstallPathHandler in k8s.io/apiserver/pkg/server/healthz.
func (s *Server) checks(r *router, others []HealthCheck) {
	all := slices.Concat([]HealthCheck{{"ping", healthy}}, others)
	r.handle("/healthz", s.unstalled(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.serveHealth(w, req, all) })))
	for _, c := range all {
		r.handle("/healthz/"+c.Name, s.unstalled(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if err := c.Check(req.Context()); err != nil {
				http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, "ok")
		})))
	}
}

// serveHealth makes all checks but those that the query excludes. What has failed is in the answer, but not why: that may be secret, and
// has a page of its own.
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

// validChecks returns an error for a check that has no page of its own.
func validChecks(all []HealthCheck) error {
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
