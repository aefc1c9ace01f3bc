// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
	"github.com/seed81659283/nodeagent/hack/bench/internal/trace"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

// After a trial the runtime and the kernel still clean up the removed pods: the network namespaces of a hundred pods keep a
// machine busy for many seconds after the last call has returned.
const (
	rest       = time.Second     // minimum pause, and the period over which the machine must be at rest
	restLimit  = 2 * time.Minute // after this time the next trial starts anyway
	atRestBusy = 0.15            // of one processor
)

// bench is the state of one run of the harness.
type bench struct {
	opts    options
	runtime *cri.Client
	machine machine
	imageID string
	rand    *rand.Rand
	out     io.Writer // for progress

	samples []sample
	trials  int // namespaces created so far
}

// subject is an agent or the floor, measured beside other subjects.
type subject struct {
	sample  sample
	measure func(ctx context.Context, t *trial)
}

// subjects returns the subjects for a number of pods: the agents, and the floor at each degree of parallelism.
func (b *bench) subjects(pods int) (list []subject) {
	for _, a := range b.opts.agents {
		list = append(list, subject{
			sample:  sample{Subject: a.Name, Pods: pods},
			measure: func(ctx context.Context, t *trial) { t.measureAgent(ctx, a) },
		})
	}
	for i, parallel := range b.opts.parallel {
		if parallel == 0 {
			parallel = pods
		}
		list = append(list, subject{
			sample:  sample{Subject: floorName, Pods: pods, Parallel: parallel},
			measure: func(ctx context.Context, t *trial) { t.measureFloor(ctx, parallel, i == 0) },
		})
	}
	return list
}

// run takes all samples, with every subject in turn in each repetition. Each repetition starts with another subject, so that
// no subject always follows the same one.
func (b *bench) run(ctx context.Context) error {
	for repeat := range b.opts.repeat {
		for _, pods := range b.opts.pods {
			subjects := b.subjects(pods)
			for _, i := range order(len(subjects), repeat) {
				next := subjects[i]
				s := next.sample
				s.Repeat = repeat
				if err := b.runTrial(ctx, &s, func(t *trial) { next.measure(ctx, t) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// order returns the order in which n subjects are measured in a repeat.
func order(n, repeat int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = (repeat + i) % n
	}
	return list
}

// runTrial runs one trial in its own namespace and directory, cleans up and records its sample. It returns an error only if the
// run cannot continue.
func (b *bench) runTrial(ctx context.Context, s *sample, measure func(*trial)) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !b.opts.hurry {
		if err := b.settle(ctx); err != nil {
			return err
		}
		if err := awaitRest(ctx, procFS("/proc").machineCPU); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	b.trials++
	namespace := fmt.Sprintf("%s%s-%d", namespacePrefix, b.machine.RunID, b.trials)
	t := &trial{
		bench:  b,
		sample: s,
		work:   work,
		labels: map[string]string{cri.LabelPodNamespace: namespace},
		pods:   withVolumes(newPods(namespace, b.opts.image, b.imageID, s.Pods, b.opts.limits), b.opts.volumeKinds()),
	}
	if b.opts.trace {
		t.trace = &trace.Trace{}
	}
	if now, err := describeMachine(); err == nil {
		s.Load = now.Load[0]
	}
	measure(t)
	err = t.clean(ctx, namespace)
	b.samples = append(b.samples, *s)
	b.progress(s)
	if err != nil {
		return err
	}
	if b.opts.hurry {
		return nil
	}
	return awaitRest(ctx, procFS("/proc").machineCPU)
}

// awaitRest waits until the processors are idle, according to their spent CPU time, but at most for restLimit.
func awaitRest(ctx context.Context, spent func() (time.Duration, error)) error {
	for deadline := time.Now().Add(restLimit); ; {
		before, err := spent()
		if err != nil {
			return err
		}
		if err := wait.Sleep(ctx, rest); err != nil {
			return err
		}
		after, err := spent()
		if err != nil {
			return err
		}
		if float64(after-before) < atRestBusy*float64(rest) || time.Now().After(deadline) {
			return nil
		}
	}
}

// clean removes the remains of a trial.
func (t *trial) clean(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	err := errors.Join(t.runtime.RemovePods(ctx, t.labels), removeTree(t.work), removeLogs(namespace))
	if err != nil {
		return fmt.Errorf("clean up behind %s: %w", t.sample.Subject, err)
	}
	return nil
}

// progress prints a line per sample, so that an aborted run is not lost.
func (b *bench) progress(s *sample) {
	subject := s.Subject
	if s.Parallel > 0 {
		subject = fmt.Sprintf("%s, %d at a time", subject, s.Parallel)
	}
	cell := func(m metric, decimals int) string { return figure(stat.Median(s.Values[m]), decimals) }
	fmt.Fprintf(b.out, "repeat %d, load %.1f, %d pods, %s: running %s s, first %s s, idle %s millicores, replaced %s s, gone %s s\n",
		s.Repeat+1, s.Load, s.Pods, subject, cell(startSeconds, 2), cell(firstSeconds, 2), cell(idleMillicores, 1),
		cell(replaceSeconds, 3), cell(goneSeconds, 2))
	for _, p := range s.Phases {
		p.Print(b.out)
	}
	for _, problem := range s.Problems {
		fmt.Fprintf(b.out, "  problem: %s\n", problem)
	}
}
