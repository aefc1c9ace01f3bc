// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// testExecEndOfSet stops a set while a command still runs, and checks that no call and no command remains. The runtime has a
// second to kill the command, which is too short for containerd on a busy machine, so it is tried several times.
func testExecEndOfSet(t *testing.T, h execHost) {
	b := h.start(t)
	for range 5 {
		m := newMark()
		if waited := b.endOfSet(t, m); !waited {
			continue
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if countSleepers(t, m) == 0 {
				return
			}
		}
		t.Log("the command still runs")
	}
	require.Fail(t, "a command remains in each attempt")
}

// endOfSet stops a set just after a command timed out, and reports whether a runtime call was still running.
func (b testContainer) endOfSet(t *testing.T, m string) (waited bool) {
	t.Helper()
	var inside atomic.Int32
	counting := execFunc(func(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
		inside.Add(1)
		defer inside.Add(-1)
		return b.runtime.ExecSync(ctx, id, cmd, timeout)
	})
	p, err := probe.NewExec(podprobe.CRI(counting), probe.ExecConfig{ContainerID: b.id, Command: []string{"sleep", m}})
	require.NoError(t, err)
	probed := make(chan probe.Result, 100)
	set := probe.NewSet(probe.Options{Rand: func() float64 { return 0 }, Hooks: probe.Hooks{
		ProbeFinished: func(_ probe.Key, r probe.Result, _ error, _ time.Duration) { probed <- r },
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	require.NoError(t, set.Sync([]probe.Target{{
		Key:         probe.Key{PodUID: "u1", Container: "main", Kind: probe.Readiness},
		ContainerID: b.id, StartedAt: time.Now(), Running: true, Started: true,
		Spec: probe.Spec{Period: time.Hour, Timeout: 300 * time.Millisecond}, Prober: p,
	}}))
	assert.Equal(t, probe.Failure, receive(t, probed).Outcome)
	waited = inside.Load() == 1 // the runtime rounds the timeout up to whole seconds
	cancel()
	require.NoError(t, receive(t, done))
	assert.Zero(t, inside.Load(), "a runtime call continues after Run")
	return waited
}
