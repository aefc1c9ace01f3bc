// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"
)

// Threshold is how much of what a signal measures is kept free.
type Threshold struct {
	Signal      Signal
	Value       Amount
	GracePeriod time.Duration // how long it has to be met before a pod is evicted; zero: a hard threshold, which acts at once
	MinReclaim  Amount        // how much more than Value is made free once it is met
}

// Hard reports whether the threshold acts as soon as it is met.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns the threshold as it is written on a command line, such as "memory.available<100Mi".
func (t Threshold) String() string {
	text := string(t.Signal) + "<" + t.Value.String()
	if !t.Hard() {
		text += " for " + t.GracePeriod.String()
	}
	return text
}

// Config is the part of a configuration that says when pods are evicted. Keys of the maps are signals. Source:
// KubeletConfiguration in k8s.io/kubelet/config/v1beta1.
type Config struct {
	Hard            map[string]string // evictionHard; nil: [DefaultHard]. An empty map sets no threshold
	Soft            map[string]string // evictionSoft
	SoftGracePeriod map[string]string // evictionSoftGracePeriod, a Go duration for each key of Soft
	MinimumReclaim  map[string]string // evictionMinimumReclaim

	MergeDefaults bool // mergeDefaultEvictionSettings: keys that Hard does not have are those of DefaultHard
	// EnforcePods says that enforceNodeAllocatable has "pods": each hard threshold of memory.available also counts for
	// allocatableMemory.available, the memory that all pods together may use.
	EnforcePods bool
}

// DefaultHard returns the hard thresholds of a configuration that has none, which depend on the operating system. The map is
// the caller's. Source: pkg/kubelet/eviction/defaults_*.go.
func DefaultHard() map[string]string { return defaultHard(runtime.GOOS) }

func defaultHard(goos string) map[string]string {
	hard := map[string]string{
		string(MemoryAvailable):  "100Mi",
		string(NodeFSAvailable):  "10%",
		string(ImageFSAvailable): "15%",
	}
	switch goos {
	case "windows":
		hard[string(MemoryAvailable)] = "500Mi"
	case "linux":
		hard[string(NodeFSInodesFree)], hard[string(ImageFSInodesFree)] = "5%", "5%"
	}
	return hard
}

// ParseThresholds reads the thresholds of a configuration: hard ones, soft ones, and those of allocatableMemory.available that
// follow from hard ones, each in the order of the signals. A value of "0%" or "100%" sets no threshold. Thresholds of
// containerfs follow from the [Layout], see [Layout.Thresholds].
//
// The error has all that is wrong, each with the field, the signal and the value.
func ParseThresholds(c Config) ([]Threshold, error) {
	var p parser
	list := p.statements("evictionHard", c.hard())
	soft := p.statements("evictionSoft", c.Soft)
	grace := p.gracePeriods(c.SoftGracePeriod)
	reclaim := p.values("evictionMinimumReclaim", c.MinimumReclaim, parseReclaim)
	for _, t := range soft {
		period, ok := grace[t.Signal]
		if _, given := c.SoftGracePeriod[string(t.Signal)]; !ok && !given {
			p.add("evictionSoftGracePeriod", string(t.Signal), errors.New("required for a soft threshold"))
		}
		t.GracePeriod = period
		list = append(list, t)
	}
	for i := range list {
		list[i].MinReclaim = reclaim[list[i].Signal]
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	if c.EnforcePods {
		list = withAllocatable(list)
	}
	return list, nil
}

// hard returns the hard thresholds with the defaults that count.
func (c Config) hard() map[string]string {
	switch {
	case c.Hard == nil:
		return DefaultHard()
	case c.MergeDefaults:
		merged := DefaultHard()
		maps.Copy(merged, c.Hard)
		return merged
	default:
		return c.Hard
	}
}

// withAllocatable adds a copy of each hard threshold of memory.available. Source: addAllocatableThresholds in
// pkg/kubelet/eviction/helpers.go.
func withAllocatable(list []Threshold) []Threshold {
	for _, t := range slices.Clone(list) {
		if t.Signal == MemoryAvailable && t.Hard() {
			t.Signal = AllocatableMemoryAvailable
			list = append(list, t)
		}
	}
	return list
}

// parser collects what is wrong with a configuration.
type parser struct{ errs []error }

func (p *parser) add(field, key string, err error) {
	p.errs = append(p.errs, fmt.Errorf("%s[%q]: %w", field, key, err))
}

// keys returns the signals of a map in the order in which they are handled, and names what is no signal.
func (p *parser) keys(field string, m map[string]string) (signals []Signal) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if Signal(key).index() < 0 {
			p.add(field, key, fmt.Errorf("%q is not a signal such as %s", m[key], MemoryAvailable))
			continue
		}
		signals = append(signals, Signal(key))
	}
	slices.SortFunc(signals, func(a, b Signal) int { return a.index() - b.index() })
	return signals
}

// statements reads thresholds, without those that are disabled.
func (p *parser) statements(field string, m map[string]string) (list []Threshold) {
	values := p.values(field, m, ParseAmount)
	for _, s := range nodeSignals() {
		if v, ok := values[s]; ok && !isDisabled(m[string(s)]) {
			list = append(list, Threshold{Signal: s, Value: v})
		}
	}
	return list
}

// values reads a map of amounts.
func (p *parser) values(field string, m map[string]string, parse func(string) (Amount, error)) map[Signal]Amount {
	values := make(map[Signal]Amount, len(m))
	for _, s := range p.keys(field, m) {
		v, err := parse(m[string(s)])
		if err != nil {
			p.add(field, string(s), err)
			continue
		}
		values[s] = v
	}
	return values
}

// gracePeriods reads the grace periods of soft thresholds.
func (p *parser) gracePeriods(m map[string]string) map[Signal]time.Duration {
	const field = "evictionSoftGracePeriod"
	periods := make(map[Signal]time.Duration, len(m))
	for _, s := range p.keys(field, m) {
		text := m[string(s)]
		switch period, err := time.ParseDuration(text); {
		case err != nil:
			p.add(field, string(s), fmt.Errorf("%q: not a duration such as 30s", text))
		case period < 0:
			p.add(field, string(s), fmt.Errorf("%q: must not be negative", text))
		default:
			periods[s] = period
		}
	}
	return periods
}

// FindContradictions returns what the kubelet accepts and what can hardly be meant: a soft threshold that is not met before the hard
// one of its signal, and a threshold that is met as long as the resource is not wholly unused. It compares amounts with amounts
// and percentages with percentages.
func FindContradictions(thresholds []Threshold) (found []error) {
	for _, t := range thresholds {
		if sum := t.Value.Fraction + t.MinReclaim.Fraction; t.Value.Fraction > 0 && sum >= 1 {
			found = append(found, fmt.Errorf("%s: with a minimum reclaim of %s it is always met again", t, t.MinReclaim))
		}
		for _, hard := range thresholds {
			if t.Hard() || !hard.Hard() || t.Signal != hard.Signal {
				continue
			}
			amounts := t.Value.Absolute != 0 && t.Value.Absolute <= hard.Value.Absolute
			fractions := hard.Value.Absolute == 0 && t.Value.Fraction != 0 && t.Value.Fraction <= hard.Value.Fraction
			if amounts || fractions {
				found = append(found, fmt.Errorf("%s: the hard threshold %s is met as soon", t, hard))
			}
		}
	}
	return found
}
