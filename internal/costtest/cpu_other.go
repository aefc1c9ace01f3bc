// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package costtest

import "time"

// cpuTime returns the elapsed time, because this operating system does not report the CPU time.
func cpuTime() time.Duration { return time.Since(epoch) }

var epoch = time.Now() //nolint:gochecknoglobals // a constant
