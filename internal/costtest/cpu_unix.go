// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package costtest

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that all threads of this process have used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for bad arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
