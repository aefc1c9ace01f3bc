// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// rest is the time between two trials, in which the runtime ends what it does behind removed pods.
const rest = 2 * time.Second

// bench is one run of the harness.
type bench struct {
	opts    options
	cri     *criClient
	machine machine
	imageID string
	rand    *rand.Rand
	out     io.Writer // progress

	samples []sample
	trials  int // namespaces made so far
}

// run takes all samples: every subject in turn, then again.
func (b *bench) run(ctx context.Context) error {
	for repeat := range b.opts.repeat {
		for _, pods := range b.opts.pods {
			for _, a := range b.opts.agents {
				s := sample{Subject: a.Name, Pods: pods, Repeat: repeat}
				if err := b.take(ctx, &s, func(t *trial) { t.measureAgent(ctx, a) }); err != nil {
					return err
				}
			}
			for i, parallel := range b.opts.parallel {
				if parallel == 0 {
					parallel = pods
				}
				s := sample{Subject: floorName, Pods: pods, Repeat: repeat, Parallel: parallel}
				if err := b.take(ctx, &s, func(t *trial) { t.measureFloor(ctx, parallel, i == 0) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// take runs one trial in a namespace and a directory of its own, cleans up behind it and records its sample. It returns
// an error only if there is no point in going on.
func (b *bench) take(ctx context.Context, s *sample, measure func(*trial)) error {
	if err := context.Cause(ctx); err != nil {
		return err
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
		labels: map[string]string{labelPodNamespace: namespace},
		pods:   makePods(namespace, b.opts.image, b.imageID, s.Pods, b.opts.limits),
	}
	if b.opts.trace {
		t.trace = &trace{}
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
	return sleep(ctx, rest)
}

// clean removes all that a trial left.
func (t *trial) clean(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	err := errors.Join(t.cri.removePods(ctx, t.labels), removeTree(t.work), removeLogs(namespace))
	if err != nil {
		return fmt.Errorf("clean up behind %s: %w", t.sample.Subject, err)
	}
	return nil
}

// progress prints a line per sample, so that a long run shows life and an aborted one is not lost.
func (b *bench) progress(s *sample) {
	subject := s.Subject
	if s.Parallel > 0 {
		subject = fmt.Sprintf("%s, %d at a time", subject, s.Parallel)
	}
	cell := func(m metric, decimals int) string { return figure(median(s.Values[m]), decimals) }
	fmt.Fprintf(b.out, "repeat %d, load %.1f, %d pods, %s: running %s s, first %s s, idle %s millicores, replaced %s s, gone %s s\n",
		s.Repeat+1, s.Load, s.Pods, subject, cell(startSeconds, 2), cell(firstSeconds, 2), cell(idleMillicores, 1),
		cell(replaceSeconds, 3), cell(goneSeconds, 2))
	for _, p := range s.Phases {
		p.print(b.out)
	}
	for _, problem := range s.Problems {
		fmt.Fprintf(b.out, "  problem: %s\n", problem)
	}
}
