// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
)

// options contains the values of the flags.
type options struct {
	endpoint, image            string
	agent, cgroupRoot, kubelet string
	pods, log, scrapes         int
	execs, parallel, idle      int
	repeat                     int
	settle, rest, limit, grace time.Duration
	monitored                  time.Duration
	json                       string
}

// Run measures as the command line args select, without the name of the program, and prints the figures to out.
func Run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench api", flag.ContinueOnError)
	flags.StringVar(&o.endpoint, "cri", "", "`endpoint` of the runtime, unix:///path, which must be empty")
	flags.StringVar(&o.image, "image", "", "`reference` of an image in the runtime that has /bin/sh, cat and true")
	flags.StringVar(&o.agent, "agent", "", "`path` of examples/agent")
	flags.StringVar(&o.cgroupRoot, "cgroup-root", "", "`cgroup` of the agent's pods")
	flags.StringVar(&o.kubelet, "kubelet", "", "`path` of a kubelet to compare with")
	flags.IntVar(&o.pods, "n", 100, "pods beside the one that requests are for")
	flags.IntVar(&o.log, "log", 1024, "`MiB` of the log, and of what a port-forward carries")
	flags.IntVar(&o.scrapes, "scrapes", 50, "requests of each page")
	flags.IntVar(&o.execs, "execs", 200, "execs one after the other, and as many at once by -parallel")
	flags.IntVar(&o.parallel, "parallel", 50, "execs under way at a time")
	flags.IntVar(&o.idle, "idle", 200, "idle execs")
	flags.IntVar(&o.repeat, "repeat", 1, "how often each is measured, in turn")
	flags.DurationVar(&o.settle, "settle", time.Minute, "before memory is looked at")
	flags.DurationVar(&o.rest, "rest", time.Minute, "how long CPU time at rest is taken")
	flags.DurationVar(&o.monitored, "monitored", time.Minute, "how long every page is asked for each 15 s")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "deadline for each step")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "time an agent has to end at SIGTERM")
	flags.StringVar(&o.json, "json", "", "`file` for all figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	return measure(ctx, o, out)
}

// bench is the state of one run.
type bench struct {
	options
	runtime *cri.Client
	work    string
	all     []figures
}

// measure takes all figures and prints them. After an error it prints the figures taken so far.
func measure(ctx context.Context, o options, out io.Writer) (err error) {
	subjects, err := o.subjects()
	if err != nil {
		return err
	}
	b := &bench{options: o}
	if b.work, err = os.MkdirTemp("", "bench-api-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.RemoveTree(b.work)) }()
	if b.runtime, _, err = cri.Dial(ctx, o.endpoint); err != nil {
		return err
	}
	defer b.runtime.Close()
	if err := b.runtime.CheckEmpty(ctx); err != nil {
		return err
	}
	before := load()
	for repeat := range o.repeat {
		for i := range subjects {
			s := subjects[(repeat+i)%len(subjects)] // none always comes first
			if trialErr := b.measure(ctx, s, repeat); trialErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", s.name, trialErr))
			}
		}
	}
	fmt.Fprintf(out, "%d processors, %d pods, load average before %s, after %s\n", runtime.NumCPU(), o.pods+1, before, load())
	printTable(out, b.all)
	if o.json != "" {
		text, jsonErr := json.MarshalIndent(b.all, "", "  ")
		err = errors.Join(err, jsonErr, os.WriteFile(o.json, append(text, '\n'), 0o644))
	}
	return err
}

// load returns the load averages of the machine.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// subjects returns the agents to measure beside the floor.
func (o options) subjects() (list []subject, err error) {
	switch {
	case o.endpoint == "" || o.image == "":
		return nil, errors.New("-cri and -image are needed")
	case min(o.log, o.scrapes, o.execs, o.parallel, o.idle, o.repeat) < 1 || o.pods < 0 || min(o.rest, o.monitored) <= 0:
		return nil, errors.New("-log, -scrapes, -execs, -parallel, -idle, -repeat, -rest and -monitored must be positive, and -n not negative")
	case o.agent == "" && o.kubelet == "":
		return nil, errors.New("-agent or -kubelet is needed")
	case o.agent != "" && o.cgroupRoot == "":
		return nil, errors.New("-agent needs -cgroup-root: without cgroups it has no usage on its pages")
	}
	if o.agent != "" {
		list = append(list, subject{"agent", (*trial).startAgent})
	}
	if o.kubelet != "" {
		list = append(list, subject{"kubelet", (*trial).startKubelet})
	}
	return list, nil
}
