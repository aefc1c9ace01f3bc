// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

const (
	// busyRatio is the number of live heaps that a busy process allocates per period at least. An agent with 110 pods and nothing to do
	// allocates less.
	busyRatio = 16
	// minLive replaces a smaller live heap, in bytes: before the first garbage collection the live heap is 0.
	minLive = 4 << 20
	// idlePercent is GOGC of an idle process: its heap is 1.25 times the live heap instead of twice as large. An agent with 110 pods
	// allocates some 20 MiB a minute at rest, which makes one garbage collection every ten seconds.
	idlePercent = 25
	// busyPercent is GOGC of a busy process, the default of Go.
	busyPercent = 100
	// maxRegrowth is the growth of the resident memory, in bytes, after which an idle process returns memory again, for example after a
	// periodic list of pods.
	maxRegrowth = 3 << 20
)

// state is the result of the last period of measurement.
type state struct {
	idle      bool
	allocated uint64 // bytes since the start of the process
	returned  int64  // resident bytes when memory was last returned
}

// usage is the memory of the process at the end of a period, in bytes.
type usage struct {
	allocated uint64 // since the start of the process
	live      uint64 // heap that survived the last garbage collection
	resident  int64  // zero where the kernel does not report it
}

// plan is the action for Run at the end of a period of measurement.
type plan struct {
	gcPercent    int  // GOGC until the next period
	returnMemory bool // the process has become idle, or has grown while it was idle
}

// nextPlan returns the GOGC to set, and whether to return memory to the kernel, for the memory usage of the last period.
func (s *state) nextPlan(u usage) plan {
	previous := *s
	// Idle: little memory was allocated since the previous call.
	s.idle, s.allocated = u.allocated-previous.allocated <= busyRatio*max(u.live, minLive), u.allocated
	if !s.idle {
		return plan{gcPercent: busyPercent}
	}
	return plan{gcPercent: idlePercent, returnMemory: !previous.idle || u.resident > s.returned+maxRegrowth}
}
