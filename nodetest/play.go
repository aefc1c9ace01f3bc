// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// PlayOptions configures [Play]. The zero value plays a script without observations.
type PlayOptions struct {
	// Adjust may change the options that the script has set, before the node starts. Nil: no change.
	Adjust func(o *Options)
	// Observe is called with the node after each Interval in which a command "after" waits, and at its end. An error ends Play. Nil is not
	// called.
	Observe func(n ObservedNode) error
	// Interval is the time of the node between two calls of Observe. Zero: 1 s.
	Interval time.Duration
}

// ObservedNode is a node that plays a script. Observe may change the cgroups of its machine.
type ObservedNode interface {
	// Sample returns the usage of the node and of its pods now.
	Sample() Sample
	// Pod returns a pod of namespace default with its present status, and false if there is none.
	Pod(name string) (*corev1.Pod, bool)
	// Machine returns the machine of the node.
	Machine() *machine.Machine
}

// Play plays a script as [PlayScript] does, and returns the log of its node. It stops at the first command that fails: the error
// has the line number. It discards the output of commands. If ctx ends, it returns the error of ctx.
func Play(ctx context.Context, script string, o PlayOptions) (log Log, err error) {
	if o.Interval < 0 {
		return nil, fmt.Errorf("nodetest.Play: PlayOptions.Interval %v: negative", o.Interval)
	}
	o.Interval = cmp.Or(o.Interval, time.Second)
	p := &player{ctx: ctx, open: openLoop, play: o, out: &strings.Builder{}}
	number := 0
	for line := range strings.Lines(script) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") || strings.HasPrefix(line, scriptMark) {
			continue
		}
		if err = errors.Join(p.playCommand(words[0], words[1:]), ctx.Err()); err != nil {
			err = fmt.Errorf("line %d: %w", number, err)
			break
		}
	}
	if p.node != nil {
		log = p.node.Log()
		p.stop()
	}
	return log, err
}

// waitObserved lets the node run for the duration d. It calls Observe after each interval and at the end, and returns the
// first error of Observe.
func (p *player) waitObserved(d time.Duration) error {
	for d > 0 && p.ctx.Err() == nil {
		step := min(d, p.play.Interval)
		p.node.Advance(step)
		d -= step
		if err := p.play.Observe(p.node); err != nil {
			return err
		}
	}
	return nil
}
