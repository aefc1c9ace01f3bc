// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/internal/quantity"
	"github.com/seed81659283/nodeagent/nodetest"
)

// maxRuns limits the runs of a sweep per policy.
const maxRuns = 2000

// sweep varies a variable of a script.
type sweep struct {
	Name     string // without the dollar sign
	from, to float64
	whole    bool // from and to are whole numbers, and so are all values
	bytes    bool // the values are bytes: to ends with Ki, Mi, Gi or Ti
}

// parseSweep parses NAME=FROM..TO with quantities of Kubernetes.
func parseSweep(text string) (*sweep, error) {
	name, limits, ok := strings.Cut(text, "=")
	from, to, ok2 := strings.Cut(limits, "..")
	if !ok || !ok2 || !variable.MatchString("$"+name) {
		return nil, fmt.Errorf("sweep %q: not NAME=FROM..TO with a name of small letters", text)
	}
	s := &sweep{Name: name}
	for _, bound := range []struct {
		text string
		to   *float64
	}{{from, &s.from}, {to, &s.to}} {
		q, err := quantity.Parse(bound.text)
		if err != nil {
			return nil, fmt.Errorf("sweep %s: bound %q is no quantity", name, bound.text)
		}
		*bound.to = q.AsApproximateFloat64()
	}
	s.whole = s.from == math.Trunc(s.from) && s.to == math.Trunc(s.to)
	s.bytes = strings.HasSuffix(to, "i")
	if s.from > s.to {
		return nil, fmt.Errorf("sweep %s: %s is more than %s", name, from, to)
	}
	return s, nil
}

// formatValue formats a value of the variable for readers.
func (s *sweep) formatValue(v float64) string {
	if s.bytes {
		return showMiB(v / mebi)
	}
	return formatNumber(v)
}

// value returns the value of the variable in run i of n. The first run has the value from, the last run has to.
func (s *sweep) value(i, n int) float64 {
	v := s.from + (s.to-s.from)*float64(i)/float64(max(n-1, 1))
	if s.whole {
		return math.Round(v)
	}
	return math.Round(v*1000) / 1000
}

// sweepRun is the result of one run of a sweep.
type sweepRun struct {
	Policy         string  `json:"policy"`
	Run            int     `json:"run"`
	Value          float64 `json:"value"`       // of the variable
	Utilisation    float64 `json:"utilisation"` // mean working set of the node, in percent of its memory
	CPU            float64 `json:"cpu"`         // mean CPU usage in percent
	Evictions      int     `json:"evictions"`
	OOMKills       int     `json:"oomKills"`
	Lost           int     `json:"lost"`           // evictions and OOM kills
	MemoryPressure float64 `json:"memoryPressure"` // percent of the time
	NotReady       float64 `json:"notReady"`       // seconds, sum of all pods
}

// runSweep plays a scenario once per value and policy, on all processors. Runs with equal numbers play equal scripts under all policies. The variable
// $run is the number of the run, for a seed.
func runSweep(ctx context.Context, s *scenario, sw *sweep, policies []*policy, runs int, progress *reporter) ([]sweepRun, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]sweepRun, runs*len(policies))
	work := make(chan int)
	var mu sync.Mutex // guards progress and done
	done := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range work {
				run, err := playRun(ctx, s, sw, *policies[i%len(policies)], i/len(policies), runs)
				if err != nil {
					cancel(err)
					continue
				}
				results[i] = run
				mu.Lock()
				done++
				progress.report("run %d of %d", done, len(results))
				mu.Unlock()
			}
		})
	}
	for i := range results {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	workers.Wait()
	return results, context.Cause(ctx)
}

// playRun plays run i of a sweep under a policy.
func playRun(ctx context.Context, s *scenario, sw *sweep, p policy, i, runs int) (sweepRun, error) {
	value := sw.value(i, runs)
	text := strconv.FormatFloat(value, 'f', -1, 64)
	script, total, err := s.expand(map[string]string{sw.Name: text, "run": strconv.Itoa(i + 1)})
	if err != nil {
		return sweepRun{}, err
	}
	r, err := runScenario(ctx, script, p, sampleInterval(total)*sweepIntervals, func(*nodetest.Sample) {})
	if err != nil {
		return sweepRun{}, fmt.Errorf("run %d with %s=%s: %w", i+1, sw.Name, text, err)
	}
	t := tracksOf(r)
	sum := totalOf(r, t, podRows(r, t))
	return sweepRun{
		Policy: p.name, Run: i + 1, Value: value, Utilisation: sum.MemoryMean, CPU: sum.CPUMean, Evictions: sum.Evictions, OOMKills: sum.OOMKills,
		Lost: sum.Evictions + sum.OOMKills, MemoryPressure: sum.MemoryPressure, NotReady: sum.NotReady,
	}, nil
}

// sweepIntervals is the time between two samples in a sweep, as a multiple of sampleInterval. The means of a sweep need fewer samples.
const sweepIntervals = 10

// writeRunsCSV writes the runs of a sweep as CSV. The column of the variable has its name.
func writeRunsCSV(w io.Writer, sw *sweep, runs []sweepRun) error {
	header := []string{
		"policy", "run", sw.Name, "utilisation_percent", "cpu_percent", "evictions", "oom_kills", "memory_pressure_percent", "not_ready_seconds",
	}
	return writeCSV(w, header, func(write func(...string)) {
		for _, r := range runs {
			write(r.Policy, strconv.Itoa(r.Run), formatNumber(r.Value), formatNumber(r.Utilisation), formatNumber(r.CPU), strconv.Itoa(r.Evictions), strconv.Itoa(r.OOMKills),
				formatNumber(r.MemoryPressure), formatNumber(r.NotReady))
		}
	})
}
