// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// TestRuntimeConforms proves that the suite can pass; TestSuiteFindsFaults proves that it can fail.
func TestRuntimeConforms(t *testing.T) {
	for name, wrap := range map[string]func(*critest.Runtime) cri.Runtime{
		"complete": func(rt *critest.Runtime) cri.Runtime { return rt },
		"summary":  func(rt *critest.Runtime) cri.Runtime { return critest.SummaryRuntime{Runtime: rt} },
		"intercepted": func(rt *critest.Runtime) cri.Runtime {
			return &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Latency: func(string, string) time.Duration { return 30 * time.Millisecond }}
		},
		"like CRI-O": func(rt *critest.Runtime) cri.Runtime {
			return &critest.CRIO{SummaryRuntime: critest.SummaryRuntime{Runtime: rt}}
		},
		"bare": func(rt *critest.Runtime) cri.Runtime { return &critest.Faults{Runtime: rt} },
	} {
		t.Run(name, func(t *testing.T) {
			critest.TestRuntime(t, critest.Fixture{
				New: func(t *testing.T) cri.Runtime {
					rt := critest.New(critest.Options{
						Script: critest.SuiteScript,
						Images: []cri.Image{critest.NewImage("busybox", 0)},
					})
					t.Cleanup(func() {
						left, err := rt.List(context.WithoutCancel(t.Context()))
						require.NoError(t, err)
						assert.Empty(t, left.Sandboxes, "the suite removes its sandboxes")
						assert.Empty(t, left.Containers, "the suite removes its containers")
					})
					return wrap(rt)
				},
				Reopen:          func(_ *testing.T, rt cri.Runtime) cri.Runtime { return rt },
				Run:             synctest.Test,
				Image:           "busybox",
				IsolatedNetwork: true,
			})
		})
	}
}
