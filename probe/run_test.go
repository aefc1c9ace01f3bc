// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// Healthy reports a missing Run, and a second Run is rejected.
func TestHealthyFailsWithoutRunAndSecondRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probe.NewSet(probe.Options{})
		require.NoError(t, s.Healthy(), "a set without targets is healthy")
		prober := probe.Func(func(context.Context) (probe.Result, error) { return probe.Result{}, nil })
		require.NoError(t, s.Sync([]probe.Target{{
			Key: probe.Key{PodUID: "u", Container: "c", Kind: probe.Readiness}, ContainerID: "id", Running: true, Started: true,
			Spec: probe.Spec{Period: time.Second, Timeout: time.Second, FailureThreshold: 1, SuccessThreshold: 1}, Prober: prober,
		}}))
		require.EqualError(t, s.Healthy(), "probe.Set.Run is not running: call it in a goroutine of its own")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, s.Healthy())
		require.EqualError(t, s.Run(ctx), "probe.Set: second call of Run")
		cancel()
		synctest.Wait()
		require.Error(t, s.Healthy(), "Run has returned")
	})
}
