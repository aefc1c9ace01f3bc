// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/seed81659283/nodeagent/nodetest"
)

// outcome is the result of a scenario under a policy.
type outcome struct {
	policy    policy
	threshold int64 // bytes of memory.available at which pods are evicted
	log       nodetest.Log
	samples   []nodetest.Sample // ordered by time, at least one
}

// maxSamples limits the samples of a run, except for those at the ends of commands.
const maxSamples = 600

// sampleInterval returns the time between two samples of a run: at least a second.
func sampleInterval(total time.Duration) time.Duration {
	return max(time.Second, (total / maxSamples).Round(time.Second))
}

// runScenario plays a script under a policy and samples the node at this interval. progress is called with each sample.
func runScenario(ctx context.Context, script string, p policy, interval time.Duration, progress func(s *nodetest.Sample)) (*outcome, error) {
	r := &outcome{policy: p}
	play := nodetest.PlayOptions{Adjust: r.policy.adjust, Interval: interval}
	if p.throttling != nil {
		play.Interval = time.Second // memory.high is set soon after a container has started
	}
	next := time.Duration(0)
	play.Observe = func(n nodetest.ObservedNode) error {
		s := n.Sample()
		for i := range s.Pods {
			if err := r.policy.limitMemory(ctx, n, &s, &s.Pods[i]); err != nil {
				return fmt.Errorf("set memory.high of pod %s: %w", s.Pods[i].Name, err)
			}
		}
		if s.At >= next {
			r.samples = append(r.samples, s)
			next = s.At.Truncate(interval) + interval
			progress(&s)
		}
		return nil
	}
	var err error
	if r.log, err = nodetest.Play(ctx, script, play); err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.name, err)
	}
	if len(r.samples) == 0 {
		return nil, fmt.Errorf("policy %s: the script has no command \"after\", so that no time passes", p.name)
	}
	r.threshold = r.policy.threshold.Of(r.samples[0].Memory)
	return r, nil
}

// end returns the age of the node at the end of a run.
func (r *outcome) end() time.Duration { return r.samples[len(r.samples)-1].At }

// reporter writes the progress of long runs. It writes nothing in the first second.
type reporter struct {
	w    io.Writer
	last time.Time // of the last line; at first the start
}

// report writes a line if a second has passed since the last line.
func (r *reporter) report(format string, args ...any) {
	if now := time.Now(); now.Sub(r.last) >= time.Second {
		r.last = now
		fmt.Fprintf(r.w, "qoslab: "+format+"\n", args...)
	}
}
