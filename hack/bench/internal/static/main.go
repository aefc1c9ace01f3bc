// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
)

// options contains the values of the flags.
type options struct {
	endpoint string
	image    string
	agents   []agent // includes the kubelet
	kubelet  bool
	pods     []int
	parallel []int // 0 is all at once
	repeat   int
	kills    int

	settle, idle                   time.Duration
	limit, sandboxLimit, stopLimit time.Duration

	limits  limits // of the pods of agents
	volumes int    // of each pod

	json         string
	trace        bool
	seed         uint64
	force, clean bool
	hurry        bool // neither drop the kernel's caches between trials nor wait until the machine is at rest
}

// Run runs the measurements that the command line args (without the name of the program) select, and prints the figures to
// out.
func Run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parseOptions(args, os.Stderr)
	if err != nil {
		return err
	}
	return measure(ctx, opts, out)
}

// maxVolumes is the largest value of -volumes.
const maxVolumes = 100

// volumeKinds returns the kinds of the volumes of each pod.
func (o options) volumeKinds() []volumeKind { return volumeKinds(o.volumes, o.kubelet) }

// parseOptions parses the command line.
func parseOptions(args []string, usage io.Writer) (options, error) {
	opts := options{pods: []int{30, 100}, parallel: []int{1, 2, 4, 8, 16, 0}, limits: limits{CPU: "100m", Memory: "32Mi"}}
	flags := flag.NewFlagSet("bench static", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&opts.endpoint, "cri", "", "`endpoint` of the runtime, unix:///path")
	flags.StringVar(&opts.image, "image", "", "`reference` of an image in the runtime that has /bin/sh, such as busybox")
	flags.Func("agent", "`NAME=COMMAND` with {cri} and {manifests}; may be repeated", func(text string) error {
		a, err := parseAgent(text)
		opts.agents = append(opts.agents, a)
		return err
	})
	kubelet := flags.String("kubelet", "", "`path` of a kubelet to compare with")
	flags.Func("n", "numbers of pods, `list` (default 30,100)", func(text string) (err error) {
		opts.pods, err = parseInts(text, 1)
		return err
	})
	flags.Func("parallel", "degrees of parallelism of the floor, `list`; 0 is all at once (default 1,2,4,8,16,0)",
		func(text string) (err error) {
			opts.parallel, err = parseInts(text, 0)
			return err
		})
	flags.Func("limits", "limits of the agents' pods, `CPU,MEMORY` or none (default 100m,32Mi); the floor has none",
		func(text string) (err error) {
			opts.limits, err = parseLimits(text)
			return err
		})
	flags.IntVar(&opts.volumes, "volumes", 0, "volumes of each pod: emptyDir, emptyDir in memory, a projected config map, and so on; beside a kubelet the first two")
	flags.BoolVar(&opts.trace, "trace", false, "print the CRI calls of each measurement; agents then call through a proxy")
	flags.IntVar(&opts.repeat, "repeat", 3, "how often each subject is measured, in turn")
	flags.IntVar(&opts.kills, "kills", 10, "containers to kill per measurement")
	flags.DurationVar(&opts.settle, "settle", 10*time.Second, "time between the last start and the idle measurement")
	flags.DurationVar(&opts.idle, "idle", 30*time.Second, "length of the idle measurement; 0 is none, and no -settle")
	flags.DurationVar(&opts.limit, "limit", 3*time.Minute, "deadline for pods to run, be replaced, or end")
	flags.DurationVar(&opts.sandboxLimit, "sandbox-limit", 75*time.Second, "deadline for sandboxes to be removed after that")
	flags.DurationVar(&opts.stopLimit, "stop-limit", 10*time.Second, "time an agent has to end at SIGTERM")
	flags.StringVar(&opts.json, "json", "", "`file` for all samples")
	flags.Uint64Var(&opts.seed, "seed", 0, "of the random moments; 0 takes one from the clock")
	flags.BoolVar(&opts.force, "force", false, "measure beside pods of others")
	flags.BoolVar(&opts.clean, "clean", false, "remove pods of an earlier run first")
	flags.BoolVar(&opts.hurry, "hurry", false, "neither let go of what earlier trials left in the kernel nor wait for a machine at rest: figures are noise")
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	return opts.complete(*kubelet, flags.Args())
}

// complete checks the options and adds the kubelet to the agents.
func (o options) complete(kubelet string, rest []string) (options, error) {
	switch {
	case len(rest) > 0:
		return o, fmt.Errorf("unexpected argument %q", rest[0])
	case o.endpoint == "" || o.image == "":
		return o, errors.New("-cri and -image are needed")
	case o.repeat < 1 || o.kills < 0 || o.idle < 0 || o.settle < 0:
		return o, errors.New("-repeat must be positive, -kills, -idle and -settle not negative")
	case o.volumes < 0 || o.volumes > maxVolumes:
		return o, fmt.Errorf("-volumes must be from 0 to %d", maxVolumes)
	}
	if kubelet != "" {
		a, err := kubeletAgent(kubelet)
		if err != nil {
			return o, err
		}
		o.agents = append(o.agents, a)
		o.kubelet = true
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	names := map[string]bool{floorName: true}
	for _, a := range o.agents {
		if names[a.Name] {
			return o, fmt.Errorf("the name %s is taken: every agent needs its own", a.Name)
		}
		names[a.Name] = true
	}
	return o, nil
}

// parseInts parses comma-separated numbers, none of which may be lower than least.
func parseInts(text string, least int) ([]int, error) {
	var numbers []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, err
		}
		if n < least {
			return nil, fmt.Errorf("%d is less than %d", n, least)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// measure checks the runtime, takes all samples and prints them. After an error it prints the samples taken so far.
func measure(ctx context.Context, opts options, out io.Writer) error {
	runtime, version, err := cri.Dial(ctx, opts.endpoint)
	if err != nil {
		return err
	}
	defer runtime.Close()
	imageID, err := runtime.ResolveImage(ctx, opts.image)
	if err != nil {
		return err
	}
	if err := checkEmpty(ctx, runtime, opts); err != nil {
		return err
	}
	if opts.kubelet && kubeletRuns() {
		return errors.New("a kubelet runs on this machine, and a second one would disturb it")
	}
	defer removeMade(missingDirs())
	m, err := describeMachine()
	if err != nil {
		return err
	}
	m.Runtime, m.Image, m.Seed = version, opts.image, opts.seed
	m.RunID = strconv.FormatInt(time.Now().Unix(), 36)
	m.print(out)
	if opts.volumes > 0 {
		fmt.Fprintf(out, "volumes of each pod: %q\n", opts.volumeKinds())
	}
	b := &bench{
		opts: opts, runtime: runtime, machine: m, imageID: imageID, out: out,
		rand: rand.New(rand.NewPCG(opts.seed, 0)),
	}
	err = b.run(ctx)
	report{machine: m, samples: b.samples, agents: opts.agents}.print(out)
	if opts.json != "" {
		err = errors.Join(err, writeJSON(opts.json, b))
	}
	problems := 0
	for _, s := range b.samples {
		problems += len(s.Problems)
	}
	if problems > 0 {
		err = errors.Join(err, fmt.Errorf("%d problems, see above", problems))
	}
	return err
}

// checkEmpty returns an error for a runtime with pods of other agents.
func checkEmpty(ctx context.Context, runtime *cri.Client, opts options) error {
	sandboxes, err := runtime.Sandboxes(ctx, nil)
	if err != nil {
		return err
	}
	others := 0
	for _, sandbox := range sandboxes {
		if opts.clean && strings.HasPrefix(sandbox.GetMetadata().GetNamespace(), namespacePrefix) {
			if err := runtime.RemoveSandbox(ctx, sandbox.GetId()); err != nil {
				return err
			}
			continue
		}
		others++
	}
	switch {
	case others == 0:
		return nil
	case opts.kubelet:
		return fmt.Errorf("the runtime has %d pods of others, and a kubelet would stop them", others)
	case !opts.force:
		return fmt.Errorf("the runtime has %d pods of others: idle figures would be theirs too (-force measures all the same)", others)
	}
	return nil
}

// writeJSON writes the samples of the run to a file.
func writeJSON(path string, b *bench) error {
	text, err := json.MarshalIndent(struct {
		Machine machine  `json:"machine"`
		Agents  []agent  `json:"agents"`
		Args    []string `json:"args"`
		Samples []sample `json:"samples"`
	}{b.machine, b.opts.agents, os.Args[1:], b.samples}, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
