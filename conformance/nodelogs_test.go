// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/logquery"
)

func TestNodeLogQuery(t *testing.T) { run(t, nodeLogQuery) }
func FuzzNodeLogQuery(f *testing.F) { fuzz(f, nodeLogQuery) }

// nodeLogQuery compares the parsed query, its validation errors, and the arguments of journalctl. The log files do not
// exist.
var nodeLogQuery = conformance.Comparison[url.Values, kubelet.ConformanceQuery]{
	Make:    makeLogQuery,
	Kubelet: kubelet.ConformanceLogQuery,
	Ours: func(values url.Values) (out kubelet.ConformanceQuery) {
		q, errs := logquery.Parse(values)
		if len(errs) > 0 {
			out.Unreadable = errs.ToAggregate().Error()
		}
		if q == nil {
			return out
		}
		out.Services, out.Files = q.Services, q.Files
		if errs := q.Validate(missingFile); len(errs) > 0 {
			out.Invalid = errs.ToAggregate().Error()
		} else if len(q.Services) > 0 {
			out.Arguments = q.JournalArguments(q.Services)
		}
		return out
	},
	Exceptions: []conformance.Exception[url.Values, kubelet.ConformanceQuery]{
		{
			Name:   "times of other zones",
			Reason: "the kubelet drops the zone of a time, and journalctl interprets the time in the zone of the machine",
			When:   func(v url.Values) bool { return v.Get("sinceTime") != "" || v.Get("untilTime") != "" },
			Want: func(v url.Values, q kubelet.ConformanceQuery) kubelet.ConformanceQuery {
				q.Arguments = slices.Clone(q.Arguments)
				for i, arg := range q.Arguments {
					for _, name := range []string{"since", "until"} {
						if strings.HasPrefix(arg, "--"+name+"=") {
							q.Arguments[i] = "--" + name + "=" + logTimes[v.Get(name+"Time")] + " UTC"
						}
					}
				}
				return q
			},
		},
	},
}

// missingFile returns the kubelet's error for a file that is not in its log directory.
func missingFile(name string) error {
	if strings.HasPrefix(name, "/") {
		return missing("statat " + name + ": path escapes from parent")
	}
	return missing("statat " + name + ": no such file or directory")
}

type missing string

func (m missing) Error() string { return string(m) }

// logTimes maps times in queries to the arguments of journalctl.
var logTimes = map[string]string{
	"2026-01-02T03:04:05Z":           "2026-1-2 03:4:5",
	"2026-01-02T03:04:05+07:30":      "2026-1-1 19:34:5",
	"2026-11-12T13:14:15.5-01:00":    "2026-11-12 14:14:15",
	"2024-02-29T23:59:59.999999999Z": "2024-2-29 23:59:59",
}

func makeLogQuery(c *conformance.Choices) url.Values {
	values := url.Values{}
	add := func(name string, words ...string) {
		for range c.Int(3) {
			values.Add(name, conformance.Pick(c, words...))
		}
	}
	for range c.Int(4) {
		add("query", "kubelet", "containerd", "a.b@c:d_e-f", "foo/missing.log", "/missing.log", `foo\missing`, " ", "", "a b", "x$y", "-u", "é",
			strings.Repeat("x", 256), strings.Repeat("x", 257))
	}
	times := []string{"", "now", "2026-01-02", "2026-01-02T03:04:05"}
	for name := range logTimes {
		times = append(times, name)
	}
	slices.Sort(times)
	add("sinceTime", times...)
	add("untilTime", times...)
	add("boot", "", "0", "-1", "1", "+0", "x", "-99999999999999999999", "1.5")
	add("tailLines", "", "0", "5", "100000", "100001", "-1", "x", "0x10")
	add("pattern", "", "err|warn", "(", "a b", "--file=x", `\pL`, "[z-a]", "(?<n>x)", "a**")
	add("other", "x")
	return values
}
