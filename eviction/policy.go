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

// Rules configures the decisions: when to evict which pods. Zero values are suitable for production, except that Thresholds
// should be set.
type Rules struct {
	Thresholds       []Threshold   // see ParseThresholds; nil: evict for limits of local storage only
	TransitionPeriod time.Duration // how long a condition stays true after the last met threshold; zero: 5 min
	// MaxGracePeriod limits the grace period of a pod evicted for a soft threshold; zero or less: 1 s.
	MaxGracePeriod time.Duration
	// Ranker returns the ranker for a layout; nil: NewRanker with the layout and IgnoreSwap.
	Ranker func(Layout) EvictionRanker

	NoLocalStorage bool // ignore limits of local storage (localStorageCapacityIsolation: false)

	// The fields below select the kubelet's behaviour; see Kubelet.
	FixedPeriod   time.Duration // time between observations; zero: 100 ms to 10 s, shorter if a threshold is close
	IgnoreSwap    bool          // do not count swapped memory in rankings
	NoCache       bool          // never reclaim caches
	NoReclaimWait bool          // do not wait for the effect of a reclaim of disk space
}

// Kubelet returns a copy of r with the kubelet's behaviour: the node is observed every 10 s, swap does not count, caches are
// not reclaimed, and evictions do not wait for the effect of a reclaim.
func (r Rules) Kubelet() Rules {
	r.FixedPeriod, r.IgnoreSwap, r.NoCache, r.NoReclaimWait = 10*time.Second, true, true, true
	return r
}

const (
	defaultTransition = 5 * time.Minute
	// minGrace is the least grace period of an evicted pod. Source: immediateEvictionGracePeriodSeconds in
	// pkg/kubelet/eviction/eviction_manager.go.
	minGrace = time.Second
	// cleanupTimeout is the time for a killed pod to terminate. Source: podCleanupTimeout in the same file.
	cleanupTimeout = 30 * time.Second
	// localPeriod is the period of measurements for the limits of local storage.
	localPeriod = 10 * time.Second
	// reclaimWait is how long removed data may take to become free space. containerd measures its disk every 10 s.
	reclaimWait = 15 * time.Second
	// reclaimTimeout and cacheTimeout are how long a decision waits for a running reclaim of disk space and of memory.
	reclaimTimeout = 2 * time.Minute
	cacheTimeout   = time.Second
)

// Policy makes decisions by [Rules], which do not change. [NewPolicy] creates it. It may be used by several goroutines.
type Policy struct {
	rules   Rules
	layouts [numLayouts]struct {
		thresholds []Threshold // in the order of their handling
		ranker     EvictionRanker
	}
}

// NewPolicy returns a Policy with a copy of rules. The error names each invalid field and its value.
func NewPolicy(rules Rules) (*Policy, error) {
	if err := rules.validate(); err != nil {
		return nil, err
	}
	if rules.TransitionPeriod == 0 {
		rules.TransitionPeriod = defaultTransition
	}
	p := &Policy{rules: rules}
	for i := range p.layouts {
		l := Layout(i)
		// The owner of the configuration reports ignored containerfs thresholds.
		list, _ := l.Thresholds(rules.Thresholds)
		p.layouts[i].thresholds = sortThresholds(list)
		if rules.Ranker != nil {
			p.layouts[i].ranker = rules.Ranker(l)
		}
		if p.layouts[i].ranker == nil {
			p.layouts[i].ranker = NewRanker(RankOptions{Layout: l, IgnoreSwap: rules.IgnoreSwap})
		}
	}
	return p, nil
}

func (r Rules) validate() error {
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

// sortThresholds returns the thresholds without duplicates, in the kubelet's order: memory first, and hard before soft
// thresholds.
func sortThresholds(list []Threshold) (sorted []Threshold) {
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

// gracePeriod returns the grace period of a pod that is evicted for t. Source: synchronize in
// pkg/kubelet/eviction/eviction_manager.go.
func (p *Policy) gracePeriod(t Threshold, candidate *Candidate) time.Duration {
	if t.Hard() {
		return minGrace
	}
	return p.maxGracePeriod(candidate)
}

// maxGracePeriod returns the pod's grace period, from 1 s to Rules.MaxGracePeriod, for an eviction for a soft threshold.
func (p *Policy) maxGracePeriod(candidate *Candidate) time.Duration {
	grace := p.rules.MaxGracePeriod
	if candidate.HasGracePeriod {
		grace = min(grace, candidate.GracePeriod)
	}
	return max(grace, minGrace)
}
