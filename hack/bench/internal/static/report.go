// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
)

// row is a line of the table: a figure of the agents and the corresponding figure of the floor.
type row struct {
	label    string
	agent    metric
	floor    metric  // empty if the floor has no such figure
	quantile float64 // of the values of all repeats
	scale    float64 // from the metric's unit to the label's
	decimals int
	ofAll    bool // time until all pods have started, which depends on the parallelism of the floor
	more     bool // compared by the difference instead of the ratio
}

// rows returns all lines of the table.
func rows() []row {
	const mib = 1.0 / (1 << 20)
	return []row{
		{"all running, s", startSeconds, startSeconds, 0.5, 1, 2, true, false},
		{"first running, s (and how much later)", firstSeconds, firstSeconds, 0.5, 1, 2, true, true},
		{"idle CPU, millicores", idleMillicores, "", 0.5, 1, 1, false, false},
		{"runtime's CPU meanwhile, millicores", runtimeMillicores, runtimeMillicores, 0.5, 1, 1, false, false},
		{"machine's CPU meanwhile, millicores", machineMillicores, machineMillicores, 0.5, 1, 1, false, false},
		{"resident memory (RSS), MiB", residentBytes, "", 0.5, mib, 1, false, false},
		{"  proportional (PSS), MiB", proportionalBytes, "", 0.5, mib, 1, false, false},
		{"  anonymous, MiB", anonymousBytes, "", 0.5, mib, 1, false, false},
		{"replaced, median, s (floor: create + start)", replaceSeconds, createStartSeconds, 0.5, 1, 3, false, false},
		{"replaced, p90, s", replaceSeconds, createStartSeconds, 0.9, 1, 3, false, false},
		{"replaced, max, s", replaceSeconds, createStartSeconds, 1, 1, 3, false, false},
		{"replaced, median, s (floor: kill too)", replaceSeconds, replaceSeconds, 0.5, 1, 3, false, false},
		{"containers gone, s", goneSeconds, goneSeconds, 0.5, 1, 2, true, false},
		{"sandboxes stopped, s", stoppedSeconds, stoppedSeconds, 0.5, 1, 2, true, false},
		{"sandboxes removed, s", removedSeconds, removedSeconds, 0.5, 1, 2, true, false},
		{"binary, MiB", binaryBytes, "", 0.5, mib, 1, false, false},
		{"harness while starting, millicores", harnessStarting, harnessStarting, 0.5, 1, 1, false, false},
		{"harness while idle, millicores", harnessIdle, harnessIdle, 0.5, 1, 1, false, false},
	}
}

// report prints the samples of a run as a table per number of pods.
type report struct {
	machine machine
	samples []sample
	agents  []agent
}

// values pools a metric over all repeats.
func (r report) values(subject string, pods, parallel int, m metric) []float64 {
	var all []float64
	for _, s := range r.samples {
		if s.Subject == subject && s.Pods == pods && s.Parallel == parallel {
			all = append(all, s.Values[m]...)
		}
	}
	return all
}

// agent returns a figure of an agent, or NaN if it is missing.
func (r report) agent(name string, pods int, w row) float64 {
	return w.scale * stat.Quantile(r.values(name, pods, 0, w.agent), w.quantile)
}

// floor returns a figure of the floor, and the degree of parallelism that reached it: the best of all degrees by the row's
// quantile. The quantile is taken first, so that one lucky repeat does not become the floor.
func (r report) floor(pods int, w row) (best float64, parallel int) {
	best = math.NaN()
	if w.floor == "" {
		return best, 0
	}
	for _, s := range r.samples {
		if s.Subject != floorName || s.Pods != pods || s.Parallel == parallel {
			continue
		}
		figure := w.scale * stat.Quantile(r.values(floorName, pods, s.Parallel, w.floor), w.quantile)
		if figure < best || math.IsNaN(best) && !math.IsNaN(figure) {
			best, parallel = figure, s.Parallel
		}
	}
	return best, parallel
}

// print writes one table per number of pods.
func (r report) print(out io.Writer) {
	var sizes []int
	for _, s := range r.samples {
		if !slices.Contains(sizes, s.Pods) {
			sizes = append(sizes, s.Pods)
		}
	}
	for _, pods := range sizes {
		fmt.Fprintf(out, "\n%d pods\n", pods)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, line := range r.table(pods) {
			line[0] = fmt.Sprintf("%-45s", line[0]) // labels are aligned to the left, figures to the right
			fmt.Fprintln(table, strings.Join(line, "\t")+"\t")
		}
		table.Flush()
	}
}

// table returns the cells for a number of pods: label, floor, figure of each agent and its ratio to the floor. Then follows
// the ratio of every agent to the last one, which is the kubelet if it is measured.
func (r report) table(pods int) [][]string {
	header := []string{"", floorName, "parallel"}
	for _, a := range r.agents {
		header = append(header, a.Name, "x floor")
	}
	for _, a := range r.agents[:max(0, len(r.agents)-1)] {
		header = append(header, a.Name+"/"+r.agents[len(r.agents)-1].Name)
	}
	lines := [][]string{header}
	for _, w := range rows() {
		floor, parallel := r.floor(pods, w)
		line := []string{w.label, figure(floor, w.decimals), ""}
		if !math.IsNaN(floor) && w.ofAll {
			line[2] = strconv.Itoa(parallel)
		}
		var figures []float64
		for _, a := range r.agents {
			value := r.agent(a.Name, pods, w)
			figures = append(figures, value)
			line = append(line, figure(value, w.decimals), w.compare(value, floor))
		}
		for i := range len(figures) - 1 {
			line = append(line, figure(figures[i]/figures[len(figures)-1], 2))
		}
		lines = append(lines, line)
	}
	return lines
}

// compare returns the cell with the ratio or the difference of a figure to the floor's.
func (w row) compare(value, floor float64) string {
	if !w.more {
		return figure(value/floor, 2)
	}
	cell := figure(value-floor, 2)
	if value > floor {
		cell = "+" + cell
	}
	return cell
}

// figure formats a number as a cell; a missing number is a dash.
func figure(value float64, decimals int) string {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, value)
}

// print writes the header of a run.
func (m machine) print(out io.Writer) {
	fmt.Fprintf(out, "%s, run %s, seed %d\n", m.Time.Format("2006-01-02 15:04 MST"), m.RunID, m.Seed)
	fmt.Fprintf(out, "%d cores of %s, Linux %s, load %.2f %.2f %.2f\n",
		m.Cores, m.CPU, m.Kernel, m.Load[0], m.Load[1], m.Load[2])
	fmt.Fprintf(out, "%s, image %s\n", m.Runtime, m.Image)
	if m.Load[0] > 0.5 {
		fmt.Fprintln(out, "WARNING: the machine is not at rest (load over 0.5): these figures are noise")
	}
}
