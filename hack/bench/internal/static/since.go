// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import "time"

// since is the time from start to a moment on the runtime's clock, in seconds. The runtime runs on the same machine, so
// both are the same clock; where its moment cannot be true (none told, before the start, after it was seen), the moment
// at which the harness saw it counts.
func since(start time.Time, told int64, seen time.Time) float64 {
	if told < start.UnixNano() || told > seen.UnixNano() {
		return seen.Sub(start).Seconds()
	}
	return time.Duration(told - start.UnixNano()).Seconds()
}
