// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
)

// options contains the values of the flags.
type options struct {
	bin                        string // programs of the control plane
	virtualnode                string
	kwok, stages               string // program and configuration; empty: not measured
	sizes                      []int  // numbers of nodes
	pods                       int    // for each node
	repeat                     int
	together                   bool // at the same time
	settle, rest, limit, grace time.Duration
	json                       string
}

// Run runs the measurements that the command line args (without the name of the program) select, and prints the figures to out.
func Run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	return measureAll(ctx, o, out)
}

// parseFlags returns the options that args set, and an error if they are incomplete or out of range.
func parseFlags(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench nodes", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", ".lab/bin", "`directory` of the control plane's programs")
	flags.StringVar(&o.virtualnode, "virtualnode", "", "`path` of examples/virtualnode")
	flags.StringVar(&o.kwok, "kwok", "", "`path` of kwok to compare with")
	flags.StringVar(&o.stages, "stages", "", "`file` with the stages of kwok")
	sizes := flags.String("nodes", "10,100,1000", "comma-separated `numbers` of nodes")
	flags.IntVar(&o.pods, "pods", 10, "pods for each node")
	flags.IntVar(&o.repeat, "repeat", 1, "how often each is measured, in turn")
	flags.BoolVar(&o.together, "together", false, "measure both at the same time, each with a control plane of its own: for a long -rest")
	flags.DurationVar(&o.settle, "settle", 30*time.Second, "before CPU and memory at rest")
	flags.DurationVar(&o.rest, "rest", 2*time.Minute, "how long the nodes are at rest")
	flags.DurationVar(&o.limit, "limit", 15*time.Minute, "deadline for each step")
	flags.DurationVar(&o.grace, "grace", 20*time.Second, "time a simulator has to end at SIGTERM")
	flags.StringVar(&o.json, "json", "", "`file` for all figures")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return o, fmt.Errorf("-nodes: %q is not a positive number", text)
		}
		o.sizes = append(o.sizes, size)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.virtualnode == "":
		return o, errors.New("-virtualnode is needed")
	case (o.kwok == "") != (o.stages == ""):
		return o, errors.New("-kwok needs -stages, and -stages needs -kwok")
	case o.pods < 1 || o.repeat < 1 || o.rest <= 0:
		return o, errors.New("-pods, -repeat and -rest must be positive")
	}
	o.bin, err = filepath.Abs(o.bin) // the programs of the control plane run elsewhere
	return o, err
}

// measureAll takes all figures and prints them. After an error it prints the figures taken so far.
func measureAll(ctx context.Context, o options, out io.Writer) (err error) {
	work, err := os.MkdirTemp("", "bench-nodes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.RemoveTree(work)) }()
	subjects := []subject{{"virtualnode", false, startVirtualnode}}
	if o.kwok != "" {
		subjects = append(subjects, subject{"kwok", true, startKWOK})
	}
	var all []figures
	for repeat := range o.repeat {
		for _, size := range o.sizes {
			// None always comes first.
			inTurn := slices.Concat(subjects[repeat%len(subjects):], subjects[:repeat%len(subjects)])
			results, trialErr := o.runTrials(ctx, inTurn, size, filepath.Join(work, fmt.Sprint(size, "-", repeat)), out)
			all, err = append(all, results...), errors.Join(err, trialErr)
		}
	}
	printTables(out, o.sizes, all)
	if o.json != "" {
		text, jsonErr := json.MarshalIndent(all, "", "  ")
		err = errors.Join(err, jsonErr, os.WriteFile(o.json, append(text, '\n'), 0o644))
	}
	return err
}

// runTrials measures the subjects with this number of nodes, one after the other or together. The figures are in the order of the subjects.
func (o options) runTrials(ctx context.Context, subjects []subject, size int, dir string, out io.Writer) ([]figures, error) {
	all, errs := make([]figures, len(subjects)), make([]error, len(subjects))
	var group sync.WaitGroup
	for i, s := range subjects {
		fmt.Fprintf(out, "%s: %d nodes and %d pods\n", s.name, size, size*o.pods)
		run := func() {
			var err error
			if all[i], err = o.runTrial(ctx, s, size, filepath.Join(dir, s.name)); err != nil {
				errs[i] = fmt.Errorf("%s with %d nodes: %w", s.name, size, err)
			}
		}
		if !o.together {
			run()
			continue
		}
		group.Go(run)
	}
	group.Wait()
	return all, errors.Join(errs...)
}
