// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Options tune a [Set]. The zero value is right for production, but for Store.
type Options struct {
	// Parallel is how many probes may be in flight; zero means 256. The others wait their turn, in the order in
	// which they became due. A probe takes at most its timeout, so that n containers that never answer take n
	// times timeout/period of it.
	Parallel int
	// Store is the path of a file, in an existing directory, that keeps what was found for the next agent. Empty:
	// it is forgotten. A probe that is no longer wanted is forgotten there too: an agent that ends does not say so.
	Store string

	Rand   func() float64 // in [0,1), for the jitter after the start; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Set asks containers how they are, again and again. Its methods may be called from any goroutine, before, during
// and after Run.
type Set struct {
	opts  Options
	inbox inbox
	board board
}

// NewSet returns a Set with nothing to probe. Nothing happens until Run.
func NewSet(o Options) *Set {
	if o.Parallel <= 0 {
		o.Parallel = 256
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Set{
		opts:  o,
		inbox: inbox{wake: make(chan struct{}, 1)},
		board: board{values: make(map[Key]Value)},
	}
}

// Sync says all that is to be probed, in place of what was said before, and how the containers are now. It returns
// before anything has been probed. The error joins those of targets that make no sense, or that come twice; they are
// left out, as if they had not been there, and the others take effect.
func (s *Set) Sync(targets []Target) error {
	var errs []error
	seen := make(map[Key]struct{}, len(targets))
	good := make([]Target, 0, len(targets))
	for _, t := range targets {
		err := t.Validate()
		if _, twice := seen[t.Key]; err == nil && twice {
			err = fmt.Errorf("%s: comes twice", t.Key)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[t.Key] = struct{}{}
		good = append(good, t)
	}
	s.inbox.ask(func(r *requests) { r.synced, r.targets = true, good })
	return errors.Join(errs...)
}

// Trigger asks for a probe now instead of after the rest of the period, and returns at once. It means nothing for a
// container that is not to be asked at the moment.
func (s *Set) Trigger(k Key) {
	s.inbox.ask(func(r *requests) {
		if r.triggers == nil {
			r.triggers = make(map[Key]struct{})
		}
		r.triggers[k] = struct{}{}
	})
}

// Result returns what the container of a probe has been found to be, and whether anything is known. The value names
// the container: it may be an older one than the caller has in mind.
func (s *Set) Result(k Key) (Value, bool) { return s.board.get(k) }

// Results returns everything that [Set.Result] knows.
func (s *Set) Results() map[Key]Value { return s.board.all() }

// Status returns how the set does.
func (s *Set) Status() Status { return s.board.status() }

// Run probes until ctx ends, then returns nil as soon as every prober has returned. It is called once.
func (s *Set) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newLoop(s, &wg)
	defer l.close()
	forget := time.NewTimer(forgetAfter)
	defer forget.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.inbox.wake:
		case <-forget.C:
			l.store.forgetUnclaimed()
		case a := <-l.answers:
			l.answered(ctx, a)
		}
		timer.Reset(l.step(ctx))
	}
}
