// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Rules say when pods are evicted, and which. The zero value of each field but Thresholds is right for production.
type Rules struct {
	Thresholds       []Threshold   // see ParseThresholds; none: only limits of local storage count
	TransitionPeriod time.Duration // how long a condition stays when no threshold is met any more; zero means 5 min
	// MaxGracePeriod is the most that a pod gets to terminate that is evicted for a soft threshold; zero or less means 1 s.
	MaxGracePeriod time.Duration
	// Ranker returns who goes first in a layout; nil means NewRanker with the layout and IgnoreSwap.
	Ranker func(Layout) EvictionRanker

	NoLocalStorage bool // limits of local storage count nothing (localStorageCapacityIsolation: false)

	// What follows makes decisions those of the kubelet; see Kubelet.
	FixedPeriod   time.Duration // observe as often as this, whatever is observed; zero: 100 ms to 10 s, as it is urgent
	IgnoreSwap    bool          // swapped memory does not count in rankings
	NoCache       bool          // no Reclaim of Cache
	NoReclaimWait bool          // what is removed from a disk is not waited for
}

// Kubelet returns the rules with all that makes decisions those of the kubelet.
func (r Rules) Kubelet() Rules {
	r.FixedPeriod, r.IgnoreSwap, r.NoCache, r.NoReclaimWait = 10*time.Second, true, true, true
	return r
}

const (
	defaultTransition = 5 * time.Minute
	// minGrace is what a pod gets at least. Source: immediateEvictionGracePeriodSeconds in
	// pkg/kubelet/eviction/eviction_manager.go.
	minGrace = time.Second
	// cleanupTimeout is how long a pod that was killed may take to be gone. Source: podCleanupTimeout, as above.
	cleanupTimeout = 30 * time.Second
	// localPeriod is how often pods are measured for their limits of local storage.
	localPeriod = 10 * time.Second
	// reclaimWait is how long what was removed from a disk may take to be free. containerd measures its disk every 10 s.
	reclaimWait = 15 * time.Second
	// reclaimTimeout is when a Reclaim that has not ended is no longer waited for: one of a disk, and one of memory.
	reclaimTimeout = 2 * time.Minute
	cacheTimeout   = time.Second
)

// Policy decides. It is made by [NewPolicy] and never changes, so that any goroutine may use it.
type Policy struct {
	rules   Rules
	layouts [numLayouts]struct {
		thresholds []Threshold // in the order in which they are handled
		ranker     EvictionRanker
	}
}

// NewPolicy checks the rules. The error names the field, the threshold and the value.
func NewPolicy(r Rules) (*Policy, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.TransitionPeriod == 0 {
		r.TransitionPeriod = defaultTransition
	}
	p := &Policy{rules: r}
	for i := range p.layouts {
		l := Layout(i)
		// The thresholds of containerfs that are left out are for whoever has the configuration to complain of.
		list, _ := l.Thresholds(r.Thresholds)
		p.layouts[i].thresholds = inOrder(list)
		if r.Ranker != nil {
			p.layouts[i].ranker = r.Ranker(l)
		}
		if p.layouts[i].ranker == nil {
			p.layouts[i].ranker = NewRanker(RankOptions{Layout: l, IgnoreSwap: r.IgnoreSwap})
		}
	}
	return p, nil
}

func (r Rules) check() error {
	var errs []error
	for _, t := range r.Thresholds {
		if t.Signal.index() < 0 {
			errs = append(errs, fmt.Errorf("eviction: Rules.Thresholds: %q is not a signal such as %s", t.Signal, MemoryAvailable))
		}
		if t.GracePeriod < 0 || t.Value.Absolute < 0 || t.MinReclaim.Absolute < 0 || !(t.Value.Fraction >= 0 && t.MinReclaim.Fraction >= 0) {
			errs = append(errs, fmt.Errorf("eviction: Rules.Thresholds: %s, minimum reclaim %s: must not be negative", t, t.MinReclaim))
		}
	}
	for name, d := range map[string]time.Duration{"TransitionPeriod": r.TransitionPeriod, "FixedPeriod": r.FixedPeriod} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("eviction: Rules.%s: %s must not be negative", name, d))
		}
	}
	return errors.Join(errs...)
}

// inOrder returns thresholds in the order in which they are handled, each once: memory first, as in the kubelet, and then hard
// ones first.
func inOrder(list []Threshold) (sorted []Threshold) {
	for _, t := range list {
		if !slices.Contains(sorted, t) {
			sorted = append(sorted, t)
		}
	}
	rank := func(t Threshold) int {
		n := 0
		if t.Signal.Resource() != Memory {
			n += 2
		}
		if !t.Hard() {
			n++
		}
		return n
	}
	slices.SortStableFunc(sorted, func(a, b Threshold) int {
		return cmp.Or(rank(a)-rank(b), a.Signal.index()-b.Signal.index())
	})
	return sorted
}

// grace returns how long a pod gets. Source: synchronize in pkg/kubelet/eviction/eviction_manager.go.
func (p *Policy) grace(t Threshold, c *Candidate) time.Duration {
	if t.Hard() {
		return minGrace
	}
	return p.mostGrace(c)
}

// mostGrace returns how long a pod gets at most, whatever it is evicted for.
func (p *Policy) mostGrace(c *Candidate) time.Duration {
	grace := p.rules.MaxGracePeriod
	if c.HasGracePeriod {
		grace = min(grace, c.GracePeriod)
	}
	return max(grace, minGrace)
}
