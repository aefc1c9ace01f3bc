// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logquery_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/seed81659283/nodeagent/internal/logquery"
)

// No query results in an argument that journalctl takes for another flag.
func FuzzJournalArguments(f *testing.F) {
	f.Add("query=kubelet&pattern=--file=/etc/shadow&tailLines=3&boot=-1")
	f.Add("query=--root%3d/&query=-u&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:06%2B07:00")
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, failures := logquery.Parse(values)
		if len(failures) > 0 || q == nil || len(q.Validate(func(string) error { return nil })) > 0 || len(q.Services) == 0 {
			return
		}
		args := q.JournalArguments(q.Services)
		known := []string{"--utc", "--no-pager", "--output=short-precise", "--since=", "--until=", "--pager-end", "--lines=", "--unit=", "--grep=", "--boot"}
		for i, arg := range args {
			ok := i > 0 && args[i-1] == "--boot" && strings.Trim(arg, "-0123456789") == ""
			for _, prefix := range known {
				ok = ok || strings.HasPrefix(arg, prefix)
			}
			if !ok {
				t.Fatalf("%q is an argument of %q", arg, args)
			}
		}
	})
}
