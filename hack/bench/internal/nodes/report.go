// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
)

// metric is the name of a figure.
type metric string

// The figures, in the order of the table.
const (
	readySeconds     metric = "all nodes ready, s"
	scaleSeconds     metric = "scaled: all pods running, s"
	scaleRate        metric = "scaled: pods running per second"
	startP50         metric = "scaled: from binding to running, p50, s"
	startP99         metric = "scaled: from binding to running, p99, s"
	scaleRequests    metric = "scaled: requests per pod"
	scaleServerCPU   metric = "scaled: CPU time of the API server, s"
	restMillicores   metric = "at rest: CPU, millicores"
	restServerMillis metric = "at rest: CPU of the API server, millicores"
	restRequests     metric = "at rest: requests a minute"
	restMiB          metric = "at rest: resident, MiB"
	restGrowth       metric = "at rest: growth, MiB"
	lowestReady      metric = "nodes kept Ready"
)

func listMetrics() []metric {
	return []metric{
		readySeconds, scaleSeconds, scaleRate, startP50, startP99, scaleRequests, scaleServerCPU,
		restMillicores, restServerMillis, restRequests, restMiB, restGrowth, lowestReady,
	}
}

// figures are the figures of one subject with one number of nodes.
type figures struct {
	Subject string             `json:"subject"`
	Nodes   int                `json:"nodes"`
	Values  map[metric]float64 `json:"values"`
}

// printTables prints the medians over the repeats for each number of nodes, and the ratio of virtualnode to kwok.
func printTables(out io.Writer, sizes []int, all []figures) {
	for _, size := range sizes {
		values := map[string]map[metric][]float64{"virtualnode": {}, "kwok": {}}
		for _, f := range all {
			if f.Nodes == size {
				for m, v := range f.Values {
					values[f.Subject][m] = append(values[f.Subject][m], v)
				}
			}
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(table, "%d nodes\tvirtualnode\tkwok\tvirtualnode / kwok\t\n", size)
		for _, m := range listMetrics() {
			ours, theirs := stat.Median(values["virtualnode"][m]), stat.Median(values["kwok"][m])
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\n", m, stat.Cell(ours), stat.Cell(theirs), stat.Cell(stat.Ratio(ours, theirs)))
		}
		_ = table.Flush() // out is a terminal or a file of the caller
	}
}
