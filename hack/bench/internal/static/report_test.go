// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run has three repeats of an agent, the kubelet and the floor at two degrees of parallelism.
func run() report {
	r := report{agents: []agent{{Name: "minimal"}, {Name: "kubelet"}}}
	add := func(subject string, parallel, repeat int, m metric, values ...float64) {
		r.samples = append(r.samples, sample{
			Subject: subject, Pods: 30, Repeat: repeat, Parallel: parallel, Values: map[metric][]float64{m: values},
		})
	}
	for repeat, seconds := range []float64{2.2, 9, 2.0} { // one outlier
		add("minimal", 0, repeat, startSeconds, seconds)
		add("kubelet", 0, repeat, startSeconds, 2*seconds)
		add("minimal", 0, repeat, replaceSeconds, 0.1, 0.2, 0.3)
	}
	for repeat, seconds := range []float64{4, 4, 1} { // lucky repeat of the floor
		add(floorName, 1, repeat, startSeconds, seconds)
	}
	for repeat, seconds := range []float64{2, 2, 2} {
		add(floorName, 8, repeat, startSeconds, seconds)
	}
	add(floorName, 1, 0, createStartSeconds, 0.05, 0.1, 0.2)
	add(floorName, 8, 0, firstSeconds, 0.5)
	add("minimal", 0, 0, firstSeconds, 0.6)
	add("kubelet", 0, 0, firstSeconds, 0.25)
	return r
}

func lineOf(t *testing.T, table [][]string, label string) []string {
	t.Helper()
	for _, line := range table {
		if strings.HasPrefix(line[0], label) {
			return line
		}
	}
	require.Fail(t, "no line "+label)
	return nil
}

func TestTable(t *testing.T) {
	table := run().table(30)
	assert.Equal(t, []string{"", "floor", "parallel", "minimal", "x floor", "kubelet", "x floor", "minimal/kubelet"}, table[0])
	assert.Equal(t, []string{"all running, s", "2.00", "8", "2.20", "1.10", "4.40", "2.20", "0.50"},
		lineOf(t, table, "all running"), "medians; the floor is that of the best degree of parallelism, not of the best repeat")
	assert.Equal(t, []string{"0.50", "8", "0.60", "+0.10", "0.25", "-0.25", "2.40"}, lineOf(t, table, "first running")[1:])
	assert.Equal(t, []string{"0.100", "", "0.200", "2.00", "-", "-", "-"},
		lineOf(t, table, "replaced, median, s (floor: create")[1:], "kills of all repeats are pooled")
	assert.Equal(t, []string{"0.200", "", "0.300", "1.50", "-", "-", "-"}, lineOf(t, table, "replaced, max")[1:])
	assert.Equal(t, []string{"-", "", "-", "-", "-", "-", "-"}, lineOf(t, table, "idle CPU")[1:], "a missing figure is a dash, not a zero")
	for _, line := range table {
		assert.Len(t, line, len(table[0]), line[0])
	}
}

func TestReportHasATablePerNumberOfPods(t *testing.T) {
	r := run()
	r.samples = append(r.samples, sample{Subject: "minimal", Pods: 100})
	var out strings.Builder
	r.print(&out)
	assert.Contains(t, out.String(), "\n30 pods\n")
	assert.Contains(t, out.String(), "\n100 pods\n")
}

func TestProblemsAreCutShort(t *testing.T) {
	var s sample
	s.failed(nil)
	s.failed(wait.ErrDeadline)
	s.failed(errors.New(strings.Repeat("refused\n", 99) + "refused"))
	require.Len(t, s.Problems, 2)
	assert.Equal(t, "not within the deadline", s.Problems[0])
	assert.Equal(t, strings.Repeat("refused\n", 20)+"and 80 more lines", s.Problems[1])
}

func TestReportOfNothing(t *testing.T) {
	var out strings.Builder
	report{}.print(&out)
	assert.Empty(t, out.String())
}

func TestHeaderWarnsOfLoad(t *testing.T) {
	var quiet, busy strings.Builder
	machine{Load: [3]float64{0.5, 9, 9}}.print(&quiet)
	machine{Load: [3]float64{0.51, 0, 0}}.print(&busy)
	assert.NotContains(t, quiet.String(), "WARNING")
	assert.Contains(t, busy.String(), "WARNING")
}

func TestFigure(t *testing.T) {
	assert.Equal(t, "1.50", figure(1.5, 2))
	assert.Equal(t, "-", figure(math.NaN(), 2))
	assert.Equal(t, "-", figure(math.Inf(1), 2))
}
