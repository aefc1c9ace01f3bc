// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeattributes_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed81659283/nodeagent/internal/nodeattributes"
)

// A path that runs a command is never authorized by a rule for read access.
func FuzzRunning(f *testing.F) {
	for _, path := range []string{"/exec/a/b/c", "//exec/a/b/c", "/pods/../exec/a/b/c", "/exec", "/stats/exec"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		first, _, _ := strings.Cut(strings.Trim(path, "/"), "/")
		for _, a := range nodeattributes.ForRequest(http.MethodGet, path) {
			if slices.Contains([]string{"exec", "attach", "portForward", "run"}, first) && (a.Verb != "create" || a.Subresource != "proxy") {
				t.Fatalf("%q needs %+v alone", path, a)
			}
		}
	})
}
