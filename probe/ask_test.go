// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/probe"
)

// soon is a timeout for probes that must time out, and long one for probes that must not.
const (
	soon = 150 * time.Millisecond
	long = time.Minute
)

// probeOnce calls a prober with a timeout.
func probeOnce(t testing.TB, p probe.Prober, timeout time.Duration) (probe.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Probe(ctx)
}
