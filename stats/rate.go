// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"sync"
	"time"
)

const (
	// rateWindow is the shortest time over which a CPU rate is computed. An earlier call returns the previous rate.
	rateWindow = time.Second
	// rateAge is how long a rate is kept without a new sample: the kubelet's defaultCachePeriod.
	rateAge = 10 * time.Minute
)

// cpuRates computes CPU usage per second from the total CPU time of cgroups and containers. Each has a unique name. The zero
// value is ready for use.
type cpuRates struct {
	mu     sync.Mutex
	byName map[string]rate
}

// rate is the total CPU time of a cgroup or container at its last sample, and the CPU usage per second before that.
type rate struct {
	usage uint64    // nanoseconds of CPU time
	time  time.Time // time of the sample
	cores uint64    // CPU nanoseconds per second up to the sample
	valid bool      // cores is set
}

// updateRate stores a name's total CPU time in nanoseconds, and returns the nanoseconds per second since the last sample, or nil
// for the first.
func (r *cpuRates) updateRate(name string, usage uint64, sampledAt time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]rate{}
	}
	last, ok := r.byName[name]
	now := last.nextRate(ok, usage, sampledAt)
	r.byName[name] = now
	if !now.valid {
		return nil
	}
	return &now.cores
}

// nextRate returns the rate after a new sample of the total CPU time. Source: pkg/kubelet/stats/cri_stats_provider.go.
func (r rate) nextRate(hasPrevious bool, usage uint64, sampledAt time.Time) rate {
	past := sampledAt.Sub(r.time)
	switch {
	case !hasPrevious || usage < r.usage: // the first sample, or the counter was reset
		return rate{usage: usage, time: sampledAt}
	case past < 0: // the clock was set back
		return rate{usage: usage, time: sampledAt, cores: r.cores, valid: r.valid}
	case past < rateWindow: // the kubelet does not ignore such a sample
		return r
	}
	const most = 1 << 62 // above any real rate; conversions of larger floats are undefined
	cores := float64(usage-r.usage) / float64(past) * float64(time.Second)
	return rate{usage: usage, time: sampledAt, cores: uint64(min(cores, most)), valid: true}
}

// dropOld removes the rates whose last sample is older than rateAge.
func (r *cpuRates) dropOld(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byName, func(_ string, last rate) bool { return now.Sub(last.time) > rateAge })
}
