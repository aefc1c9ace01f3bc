// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// options contains the values of the flags.
type options struct {
	endpoint, image, bridge    string
	bin                        string // programs of the control plane
	agent, cgroupRoot          string
	kubelet, floor             string // programs; empty: not measured
	pods, kills, services      int
	repeat                     int
	settle, rest, limit, grace time.Duration
	json                       string
	hurry                      bool // keep the kernel's caches between trials
}

// Run runs the measurements that the command line args (without the name of the program) select, and prints the figures to
// out. The floor is measured in a separate process of the same program, so that earlier work of this process does not affect
// it.
func Run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench cluster", flag.ContinueOnError)
	flags.StringVar(&o.endpoint, "cri", "", "`endpoint` of the runtime, unix:///path, which must be empty")
	flags.StringVar(&o.image, "image", "", "`reference` of an image in the runtime that has /bin/sh")
	flags.StringVar(&o.bridge, "bridge", "", "`interface` that pods are on, whose address the nodes have")
	flags.StringVar(&o.bin, "bin", ".lab/bin", "`directory` of the control plane's programs")
	flags.StringVar(&o.agent, "agent", "", "`path` of examples/agent")
	flags.StringVar(&o.cgroupRoot, "cgroup-root", "", "`cgroup` of the agent's pods")
	flags.StringVar(&o.kubelet, "kubelet", "", "`path` of a kubelet to compare with")
	floor := flags.Bool("floor", true, "measure bare CRI calls, too")
	flags.IntVar(&o.pods, "n", 110, "pods that are bound at once")
	flags.IntVar(&o.kills, "kills", 20, "containers to kill")
	flags.IntVar(&o.services, "services", 10000, "services that are made; 0: none")
	flags.IntVar(&o.repeat, "repeat", 1, "how often each is measured, in turn")
	flags.DurationVar(&o.settle, "settle", time.Minute, "before memory and requests at rest")
	flags.DurationVar(&o.rest, "rest", 15*time.Minute, "how long the node is at rest")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "deadline for each step")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "time an agent has to end at SIGTERM")
	flags.StringVar(&o.json, "json", "", "`file` for all figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if *floor {
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program for -floor: %w", err)
		}
		o.floor = program
	}
	return measure(ctx, o, out)
}

// bench is the state of one run.
type bench struct {
	options
	plane   *controlplane.Plane
	runtime *cri.Client
	address string // of the nodes
	work    string
	out     io.Writer
}

// measure takes all figures and prints them. After an error it prints the figures taken so far.
func measure(ctx context.Context, o options, out io.Writer) (err error) {
	subjects, err := o.subjects()
	if err != nil {
		return err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil { // the programs of the control plane run elsewhere
		return err
	}
	b := &bench{options: o, out: out}
	if b.work, err = os.MkdirTemp("", "bench-cluster-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.RemoveTree(b.work)) }()
	if b.runtime, _, err = cri.Dial(ctx, o.endpoint); err != nil {
		return err
	}
	defer b.runtime.Close()
	if b.address, err = prepareRuntime(ctx, b.runtime, o.bridge); err != nil {
		return err
	}
	var all []figures
	if o.floor != "" {
		f, err := b.measureFloor(ctx)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	b.plane, err = controlplane.StartPlane(ctx, o.bin, filepath.Join(b.work, "plane"), controlplane.Options{ControllerManager: true, Audit: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.plane.Close()) }()
	for repeat := range o.repeat {
		for i := range subjects {
			s := subjects[(repeat+i)%len(subjects)] // none always comes first
			f, trialErr := b.measure(ctx, s, fmt.Sprintf("bench-%s-%d", s.name, repeat))
			f.Repeat = repeat
			all = append(all, f)
			if trialErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", s.name, trialErr))
			}
		}
	}
	printTable(out, all)
	if o.json != "" {
		text, jsonErr := json.MarshalIndent(all, "", "  ")
		err = errors.Join(err, jsonErr, os.WriteFile(o.json, append(text, '\n'), 0o644))
	}
	return err
}

// subjects returns the agents to measure beside the floor.
func (o options) subjects() (list []subject, err error) {
	switch {
	case o.endpoint == "" || o.image == "" || o.bridge == "":
		return nil, errors.New("-cri, -image and -bridge are needed")
	case o.pods < 1 || o.kills < 0 || o.kills > o.pods || o.services < 0 || o.repeat < 1 || o.rest <= 0:
		return nil, errors.New("-n, -repeat and -rest must be positive, -kills and -services not negative, and -kills at most -n")
	case o.agent == "" && o.kubelet == "":
		return nil, errors.New("-agent or -kubelet is needed")
	}
	if o.agent != "" {
		list = append(list, subject{"agent", (*bench).startAgent})
	}
	if o.kubelet != "" {
		list = append(list, subject{"kubelet", (*bench).startKubelet})
	}
	return list, nil
}

// gap returns the random time between two kills. A fixed gap would always kill at the same point of the period of a polling
// agent.
func gap() time.Duration { return time.Second + rand.N(2*time.Second) }
