// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
)

// metric is the name of a figure.
type metric string

// The figures, in the order of the table.
const (
	readySeconds   metric = "node ready, s"
	runningSeconds metric = "bound at once: all running, s"
	runningP50     metric = "bound at once: a pod running, p50, s"
	runningP99     metric = "bound at once: a pod running, p99, s"
	statusPatches  metric = "bound at once: patches of pod statuses"
	statusRequests metric = "bound at once: status requests, with GET"
	boundRequests  metric = "bound at once: requests"
	restRequests   metric = "at rest: requests a minute"
	restMiB        metric = "at rest: resident, MiB"
	restMillicores metric = "at rest: CPU, millicores"
	deathP50       metric = "killed: seen by the runtime, p50, s"
	toldP50        metric = "killed: status at a watcher, p50, s"
	toldP99        metric = "killed: status at a watcher, p99, s"
	lateP50        metric = "killed: status after the runtime saw it, p50, s"
	lateP99        metric = "killed: status after the runtime saw it, p99, s"
	servicesMiB    metric = "more services: more resident, MiB"
)

func metrics() []metric {
	return []metric{
		readySeconds, runningSeconds, runningP50, runningP99, statusPatches, statusRequests, boundRequests, restRequests, restMiB,
		restMillicores, deathP50, toldP50, toldP99, lateP50, lateP99, servicesMiB,
	}
}

// floorName is the subject of bare CRI calls.
const floorName = "floor"

// figures are the figures of one subject in one repeat.
type figures struct {
	Subject string             `json:"subject"`
	Repeat  int                `json:"repeat"`
	Values  map[metric]float64 `json:"values"`
	Bound   map[string]int     `json:"bound,omitempty"` // requests while pods were bound, by verb and resource
	Rest    map[string]int     `json:"rest,omitempty"`  // requests at rest, by verb and resource
}

func (f *figures) add(m metric, value float64) { f.Values[m] = value }

// measureFloor runs the benchmark of static pods, which measures bare CRI calls.
func (b *bench) measureFloor(ctx context.Context) (figures, error) {
	f := figures{Subject: floorName, Values: map[metric]float64{}}
	file := filepath.Join(b.work, "floor.json")
	cmd := exec.CommandContext(ctx, b.floor, "static", "-cri", b.endpoint, "-image", b.image, "-n", strconv.Itoa(b.pods), "-repeat", strconv.Itoa(b.repeat),
		"-idle", "0", "-kills", "0", "-parallel", "4,8,16", "-json", file)
	cmd.Stdout, cmd.Stderr = b.out, b.out
	if err := cmd.Run(); err != nil {
		return f, fmt.Errorf("measure the floor: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return f, err
	}
	seconds, err := parseFloor(text)
	f.add(runningSeconds, seconds)
	return f, err
}

// parseFloor returns the best median over all degrees of parallelism.
func parseFloor(text []byte) (float64, error) {
	var run struct {
		Samples []struct {
			Subject  string               `json:"subject"`
			Parallel int                  `json:"parallel"`
			Values   map[string][]float64 `json:"values"`
		} `json:"samples"`
	}
	if err := json.Unmarshal(text, &run); err != nil {
		return 0, fmt.Errorf("parse figures of the floor: %w", err)
	}
	byDegree := map[int][]float64{}
	for _, s := range run.Samples {
		if s.Subject == floorName {
			byDegree[s.Parallel] = append(byDegree[s.Parallel], s.Values["start_s"]...)
		}
	}
	best := math.Inf(1)
	for _, values := range byDegree {
		if len(values) > 0 {
			best = min(best, stat.Quantile(values, 0.5))
		}
	}
	if math.IsInf(best, 1) {
		return 0, fmt.Errorf("parse figures of the floor: there are none in %d samples", len(run.Samples))
	}
	return best, nil
}

// printTable prints medians over the repeats, and the ratio to the kubelet.
func printTable(out io.Writer, all []figures) {
	values, subjects := map[string]map[metric][]float64{}, []string{}
	for _, f := range all {
		if values[f.Subject] == nil {
			values[f.Subject] = map[metric][]float64{}
			subjects = append(subjects, f.Subject)
		}
		for m, v := range f.Values {
			values[f.Subject][m] = append(values[f.Subject][m], v)
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\t%s\tagent / kubelet\tagent / floor\t\n", strings.Join(subjects, "\t"))
	for _, m := range metrics() {
		fmt.Fprintf(table, "%s\t", m)
		for _, s := range subjects {
			fmt.Fprintf(table, "%s\t", stat.Cell(stat.Quantile(values[s][m], 0.5)))
		}
		agent := stat.Quantile(values["agent"][m], 0.5)
		fmt.Fprintf(table, "%s\t%s\t\n", stat.Cell(agent/stat.Quantile(values["kubelet"][m], 0.5)), stat.Cell(agent/stat.Quantile(values[floorName][m], 0.5)))
	}
	_ = table.Flush() // out is a terminal or a file of the caller
	for _, f := range all {
		for _, r := range []struct {
			when  string
			count map[string]int
		}{{"bound at once", f.Bound}, {"at rest", f.Rest}} {
			if len(r.count) > 0 {
				fmt.Fprintf(out, "requests of %s in repeat %d, %s: %s\n", f.Subject, f.Repeat+1, r.when, listed(r.count))
			}
		}
	}
}

// listed returns counts as text, the largest first.
func listed(count map[string]int) string {
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		if d := count[b] - count[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprint(count[name], " ", name)
	}
	return strings.Join(names, ", ")
}

func sum(count map[string]int) (n int) {
	for _, c := range count {
		n += c
	}
	return n
}
