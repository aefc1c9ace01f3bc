// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import "time"

// since returns the seconds from start to told, a time that the runtime reports in nanoseconds. The runtime runs on this
// machine and has the same clock. If told is impossible (missing, before start, or after seen), since uses seen, the time at
// which the harness observed the event.
func since(start time.Time, told int64, seen time.Time) float64 {
	if told < start.UnixNano() || told > seen.UnixNano() {
		return seen.Sub(start).Seconds()
	}
	return time.Duration(told - start.UnixNano()).Seconds()
}
