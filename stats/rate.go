// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"sync"
	"time"
)

const (
	// rateWindow is the shortest time over which a rate is measured. Whoever asks more often gets the last one.
	rateWindow = time.Second
	// rateAge is how long a rate is remembered of what nobody has measured since, the kubelet's defaultCachePeriod.
	rateAge = 10 * time.Minute
)

// rates remembers how much CPU time things had used, by a name that nothing else ever has. The zero value is ready.
type rates struct {
	mu   sync.Mutex
	seen map[string]rate
}

// rate is what is known of one thing.
type rate struct {
	usage uint64    // nanoseconds of CPU time
	at    time.Time // when that was
	cores uint64    // nanoseconds in each second before that
	known bool      // whether cores is
}

// update returns the nanoseconds of CPU time in each second since an earlier call, or nil where there was none.
func (r *rates) update(name string, usage uint64, at time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]rate{}
	}
	last, ok := r.seen[name]
	now := last.next(ok, usage, at)
	r.seen[name] = now
	if !now.known {
		return nil
	}
	return &now.cores
}

// next is what is known after a measurement. As in pkg/kubelet/stats/cri_stats_provider.go, a counter that fell begins
// anew, and the rate is cut to a whole number; unlike there, a measurement right after another one changes nothing.
func (r rate) next(ok bool, usage uint64, at time.Time) rate {
	past := at.Sub(r.at)
	switch {
	case !ok || usage < r.usage:
		return rate{usage: usage, at: at}
	case past < 0: // the clock was set back
		return rate{usage: usage, at: at, cores: r.cores, known: r.known}
	case past < rateWindow:
		return r
	}
	const most = 1 << 62 // of what no machine does; and conversions of larger numbers are not defined
	cores := float64(usage-r.usage) / float64(past) * float64(time.Second)
	return rate{usage: usage, at: at, cores: uint64(min(cores, most)), known: true}
}

// forget drops what was not measured for long.
func (r *rates) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.seen, func(_ string, last rate) bool { return now.Sub(last.at) > rateAge })
}
