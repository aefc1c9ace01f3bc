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

// Threshold is the least available amount of a signal. It is met when less is available.
type Threshold struct {
	Signal      Signal
	Value       Amount
	GracePeriod time.Duration // how long it must be met before a pod is evicted; zero: hard threshold, immediate eviction
	MinReclaim  Amount        // once the threshold is met, it stays met until Value plus MinReclaim is available
}

// Hard reports whether t is a hard threshold. Once a hard threshold is met, a pod is evicted at once.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns t as in the kubelet's flags, for example "memory.available<100Mi". The text of a soft threshold also has
// its grace period, for example "memory.available<1Gi for 30s".
func (t Threshold) String() string {
	text := string(t.Signal) + "<" + t.Value.String()
	if !t.Hard() {
		text += " for " + t.GracePeriod.String()
	}
	return text
}

// Config is the eviction part of the kubelet's configuration. The keys of its maps are signals. Source: KubeletConfiguration in
// k8s.io/kubelet/config/v1beta1.
type Config struct {
	Hard            map[string]string // evictionHard; nil: [DefaultHard]; an empty map: no threshold
	Soft            map[string]string // evictionSoft
	SoftGracePeriod map[string]string // evictionSoftGracePeriod: a Go duration per key of Soft
	MinimumReclaim  map[string]string // evictionMinimumReclaim

	MergeDefaults bool // mergeDefaultEvictionSettings: DefaultHard for keys missing in Hard
	// EnforcePods means that enforceNodeAllocatable contains "pods": each hard threshold of memory.available then applies to
	// allocatableMemory.available too, the memory of all pods together.
	EnforcePods bool
}

// DefaultHard returns the kubelet's default hard thresholds for this operating system. The keys are signals and the values
// are amounts, as in [Config].Hard. The caller owns the map. Source: pkg/kubelet/eviction/defaults_*.go.
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

// ParseThresholds returns the hard and then the soft thresholds in config, each sorted by signal. "0%" and "100%" disable a
// threshold. With config.EnforcePods it adds thresholds for allocatableMemory.available, but none for containerfs: see
// [Layout.Thresholds]. The error names each invalid entry.
func ParseThresholds(config Config) ([]Threshold, error) {
	var p parser
	list := p.parseThresholds("evictionHard", config.hardThresholds())
	soft := p.parseThresholds("evictionSoft", config.Soft)
	grace := p.parseGracePeriods(config.SoftGracePeriod)
	reclaim := p.parseAmounts("evictionMinimumReclaim", config.MinimumReclaim, parseReclaim)
	for _, t := range soft {
		period, ok := grace[t.Signal]
		if _, given := config.SoftGracePeriod[string(t.Signal)]; !ok && !given {
			p.addError("evictionSoftGracePeriod", string(t.Signal), errors.New("required for a soft threshold"))
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
	if config.EnforcePods {
		list = addAllocatable(list)
	}
	return list, nil
}

// hardThresholds returns c.Hard. With MergeDefaults it adds the entries of [DefaultHard] whose keys are missing. If c.Hard
// is nil, it returns DefaultHard.
func (c Config) hardThresholds() map[string]string {
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

// addAllocatable appends a copy of each hard threshold of memory.available with the signal allocatableMemory.available.
// Source: addAllocatableThresholds in pkg/kubelet/eviction/helpers.go.
func addAllocatable(list []Threshold) []Threshold {
	for _, t := range slices.Clone(list) {
		if t.Signal == MemoryAvailable && t.Hard() {
			t.Signal = AllocatableMemoryAvailable
			list = append(list, t)
		}
	}
	return list
}

// parser parses the parts of a [Config] and collects the errors of all fields.
type parser struct{ errs []error }

func (p *parser) addError(field, key string, err error) {
	p.errs = append(p.errs, fmt.Errorf("%s[%q]: %w", field, key, err))
}

// parseSignals returns the keys of values as sorted signals. It skips a key that is not a signal, and records an error that
// names field, the configuration field.
func (p *parser) parseSignals(field string, values map[string]string) (signals []Signal) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if Signal(key).index() < 0 {
			p.addError(field, key, fmt.Errorf("%q is not a signal such as %s", values[key], MemoryAvailable))
			continue
		}
		signals = append(signals, Signal(key))
	}
	slices.SortFunc(signals, func(a, b Signal) int { return a.index() - b.index() })
	return signals
}

// parseThresholds parses the amounts of evictionHard or evictionSoft. It omits thresholds that "0%" or "100%" disables.
func (p *parser) parseThresholds(field string, texts map[string]string) (list []Threshold) {
	values := p.parseAmounts(field, texts, ParseAmount)
	for _, s := range nodeSignals() {
		if v, ok := values[s]; ok && !isDisabled(texts[string(s)]) {
			list = append(list, Threshold{Signal: s, Value: v})
		}
	}
	return list
}

// parseAmounts returns the valid amounts by signal, and records an error for each invalid one.
func (p *parser) parseAmounts(field string, texts map[string]string, parse func(string) (Amount, error)) map[Signal]Amount {
	values := make(map[Signal]Amount, len(texts))
	for _, s := range p.parseSignals(field, texts) {
		v, err := parse(texts[string(s)])
		if err != nil {
			p.addError(field, string(s), err)
			continue
		}
		values[s] = v
	}
	return values
}

// parseGracePeriods parses the durations in evictionSoftGracePeriod, and returns them by signal. It omits invalid durations
// and records their errors.
func (p *parser) parseGracePeriods(values map[string]string) map[Signal]time.Duration {
	const field = "evictionSoftGracePeriod"
	periods := make(map[Signal]time.Duration, len(values))
	for _, s := range p.parseSignals(field, values) {
		text := values[string(s)]
		switch period, err := time.ParseDuration(text); {
		case err != nil:
			p.addError(field, string(s), fmt.Errorf("%q: not a duration such as 30s", text))
		case period < 0:
			p.addError(field, string(s), fmt.Errorf("%q: must not be negative", text))
		default:
			periods[s] = period
		}
	}
	return periods
}

// FindContradictions returns an error for each threshold that is probably a mistake, although the kubelet accepts it. Such a
// soft threshold is met no earlier than the hard one. Such a percentage reaches 100 % with the minimum reclaim, so that it
// stays met.
func FindContradictions(thresholds []Threshold) (found []error) {
	for _, t := range thresholds {
		if sum := t.Value.Fraction + t.MinReclaim.Fraction; t.Value.Fraction > 0 && sum >= 1 {
			found = append(found, fmt.Errorf("%s: with a minimum reclaim of %s it is always met again", t, t.MinReclaim))
		}
		for _, hard := range thresholds {
			if t.Hard() || !hard.Hard() || t.Signal != hard.Signal {
				continue
			}
			// two quantities or two percentages; others cannot be compared
			amounts := t.Value.Absolute != 0 && t.Value.Absolute <= hard.Value.Absolute
			fractions := hard.Value.Absolute == 0 && t.Value.Fraction != 0 && t.Value.Fraction <= hard.Value.Fraction
			if amounts || fractions {
				found = append(found, fmt.Errorf("%s: the hard threshold %s is met as soon", t, hard))
			}
		}
	}
	return found
}
