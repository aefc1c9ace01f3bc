// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package costtest

import "time"

// cpuTime returns the time, as nothing better is known.
func cpuTime() time.Duration { return time.Since(epoch) }

var epoch = time.Now() //nolint:gochecknoglobals // a constant
