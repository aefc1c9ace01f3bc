// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
)

// metric is the name of a figure.
type metric string

// The figures, in the order of the table.
const (
	withoutMiB          metric = "resident without its server, MiB"
	withMiB             metric = "resident with its server, MiB"
	restMillicores      metric = "at rest: CPU, millicores"
	logSpeed            metric = "log: MiB/s"
	logCPU              metric = "log: CPU, s per GiB"
	execP50             metric = "exec, one at a time: p50, ms"
	execP99             metric = "exec, one at a time: p99, ms"
	execCPU             metric = "exec, one at a time: CPU, ms"
	manyP50             metric = "exec, many at once: p50, ms"
	manyP99             metric = "exec, many at once: p99, ms"
	manyCPU             metric = "exec, many at once: CPU, ms"
	forwardSpeed        metric = "port-forward: MiB/s"
	forwardTLS          metric = "port-forward, floor with TLS: MiB/s"
	forwardCPU          metric = "port-forward: CPU, s per GiB"
	outputSpeed         metric = "exec, output: MiB/s"
	outputTLS           metric = "exec, output, floor with TLS: MiB/s"
	outputCPU           metric = "exec, output: CPU, s per GiB"
	monitoredMillicores metric = "every page each 15 s: CPU, millicores"
	idleMiB             metric = "idle execs: more resident, MiB"
	lastMiB             metric = "resident at the end, MiB"
)

// floorName is the subject of the runtime itself.
const floorName = "floor"

// pages returns the metrics pages to scrape. Agent and kubelet serve all of them.
func pages() []string {
	return []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/stats/summary", "/pods"}
}

func scrapeCPU(page string) metric { return metric("scrape of " + page + ": CPU, ms") }

// floorMetrics returns the metrics that are measured for the floor, too.
func floorMetrics() []metric {
	return []metric{logSpeed, execP50, execP99, manyP50, manyP99, forwardSpeed, forwardTLS, outputSpeed, outputTLS}
}

func metrics() []metric {
	list := []metric{
		withoutMiB, withMiB, restMillicores, logSpeed, logCPU, execP50, execP99, execCPU, manyP50, manyP99, manyCPU, forwardSpeed, forwardTLS, forwardCPU,
		outputSpeed, outputTLS, outputCPU,
	}
	for _, page := range pages() {
		list = append(list, scrapeCPU(page))
	}
	return append(list, monitoredMillicores, idleMiB, lastMiB)
}

// figures are the figures of one subject in one repeat. The floor has some for each agent.
type figures struct {
	Subject string             `json:"subject"`
	Repeat  int                `json:"repeat"`
	Values  map[metric]float64 `json:"values"`
}

func newFigures(subject string, repeat int) figures {
	return figures{subject, repeat, map[metric]float64{}}
}

func (f *figures) add(m metric, value float64) { f.Values[m] = value }

// printTable prints medians over the repeats, and ratios.
func printTable(out io.Writer, all []figures) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := []string{"", floorName, "agent", "kubelet", "agent / kubelet", "agent / floor", "kubelet / floor"}
	fmt.Fprintf(table, "%s\t\n", strings.Join(columns, "\t"))
	for _, m := range metrics() {
		medianOf := func(subject string) float64 {
			var values []float64
			for _, f := range all {
				if v, found := f.Values[m]; found && f.Subject == subject {
					values = append(values, v)
				}
			}
			return stat.Median(values)
		}
		floor, agent, kubelet := medianOf(floorName), medianOf("agent"), medianOf("kubelet")
		fmt.Fprintf(table, "%s\t", m)
		for _, v := range []float64{floor, agent, kubelet, stat.Ratio(agent, kubelet), stat.Ratio(agent, floor), stat.Ratio(kubelet, floor)} {
			fmt.Fprintf(table, "%s\t", stat.Cell(v))
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // out is a terminal or a file of the caller
}
