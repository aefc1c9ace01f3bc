// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Qoslab is a lab for QoS research: it plays one scenario under two or more policies on simulated nodes, and shows the results side by side:
//
//	qoslab -out lab noisy-neighbour
//	qoslab -out lab -policies 'kubelet,relative-excess,memory.high=0.9' memory-leak
//	qoslab -out lab -sweep pods=20..70 -runs 200 overcommit
//
// A scenario is a script in the language of nodetest.PlayScript, one of the shipped ones or a file. The directory of -out gets a page for
// browsers, index.html, which needs no network, and the data as JSON lines and CSV. An eviction ranking of your own is 20 lines of Go: ranker.go
// has one.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/nodetest"
)

// settings are the flags of the command.
type settings struct {
	out, policies, sweep, section string
	runs                          int
}

func main() {
	var f settings
	flag.StringVar(&f.out, "out", "qoslab-out", "the directory for the page and the data")
	flag.StringVar(&f.policies, "policies", "", "the policies, separated by commas; a policy is one or more of kubelet, relative-excess, SIGNAL<AMOUNT\nand memory.high=FACTOR, joined by +; default: those of the scenario, or kubelet,relative-excess")
	flag.StringVar(&f.sweep, "sweep", "", "NAME=FROM..TO plays the scenario for many values of its variable $NAME; default: that of the scenario")
	flag.IntVar(&f.runs, "runs", 200, "the runs of a sweep per policy")
	flag.StringVar(&f.section, "section", "", "the script in a file with several; default: the first")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: qoslab [flags] SCENARIO\nSCENARIO is a file, or one of %s.\n", strings.Join(shippedScenarios(), ", "))
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runStudy(ctx, flag.Arg(0), f, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "qoslab:", err)
		os.Exit(1)
	}
}

// runStudy plays a scenario and writes the output files.
func runStudy(ctx context.Context, name string, f settings, stderr io.Writer) error {
	s, err := readScenario(name, f.section)
	if err != nil {
		return err
	}
	policies, err := parsePolicies(cmp.Or(f.policies, s.Policies, "kubelet,relative-excess"))
	if err != nil {
		return err
	}
	progress := &reporter{w: stderr, last: time.Now()}
	var files []file
	if text := cmp.Or(f.sweep, s.Sweep); text != "" {
		files, err = sweepFiles(ctx, s, text, policies, f.runs, progress)
	} else {
		files, err = compareFiles(ctx, s, policies, progress)
	}
	if err != nil {
		return err
	}
	if err := writeFiles(f.out, files); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "qoslab: wrote %s\n", filepath.Join(f.out, "index.html"))
	return nil
}

// compareFiles plays a scenario under each policy, and returns the output files: a page, events and samples.
func compareFiles(ctx context.Context, s *scenario, policies []*policy, progress *reporter) ([]file, error) {
	script, total, err := s.expand(nil)
	if err != nil {
		return nil, err
	}
	var runs []*outcome
	for _, p := range policies {
		r, err := runScenario(ctx, script, *p, sampleInterval(total), func(sample *nodetest.Sample) {
			progress.report("policy %s: %v of %v, %d pods", p.name, sample.At.Round(time.Second), total, len(sample.Pods))
		})
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	events := eventsOf(runs)
	return []file{
		{"index.html", func(w io.Writer) error { return writeComparison(w, s, runs) }},
		{"events.jsonl", func(w io.Writer) error { return writeJSONLines(w, events) }},
		{"events.csv", func(w io.Writer) error { return writeEventsCSV(w, events) }},
		{"samples.csv", func(w io.Writer) error { return writeSamplesCSV(w, runs) }},
	}, nil
}

// sweepFiles plays a scenario for each value of a variable and each policy, and returns the output files: a page and the results of all runs.
func sweepFiles(ctx context.Context, s *scenario, text string, policies []*policy, runs int, progress *reporter) ([]file, error) {
	sw, err := parseSweep(text)
	if err != nil {
		return nil, err
	}
	if runs < 2 || runs > maxRuns {
		return nil, fmt.Errorf("-runs %d: not between 2 and %d", runs, maxRuns)
	}
	if !strings.Contains(s.script, "$"+sw.Name) {
		return nil, errors.New("sweep " + sw.Name + ": the scenario has no variable $" + sw.Name)
	}
	results, err := runSweep(ctx, s, sw, policies, runs, progress)
	if err != nil {
		return nil, err
	}
	return []file{
		{"index.html", func(w io.Writer) error { return writeFrontier(w, s, sw, policies, results) }},
		{"runs.jsonl", func(w io.Writer) error { return writeJSONLines(w, results) }},
		{"runs.csv", func(w io.Writer) error { return writeRunsCSV(w, sw, results) }},
	}, nil
}
