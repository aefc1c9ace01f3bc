// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A pod is resized while a container of another pod terminates, during which CRI-O blocks calls about the stats of all
// containers.
func TestResizeWhileAnotherPodStopsOnCRIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{
			Script: critest.ByName(map[string]critest.Script{"slow": critest.IgnoreTERM()}),
			Usage: func(cri.Container) cri.ContainerStats {
				return cri.ContainerStats{Memory: &cri.MemoryUsage{UsageBytes: new(uint64(1 * mib))}}
			},
		})
		n := startAgent(t, rt, &critest.CRIO{SummaryRuntime: critest.SummaryRuntime{Runtime: rt}}, lifecycle.Options{})
		slow := podtest.Pod("b")
		slow.Spec.Containers[0].Name = "slow"
		slow.Spec.TerminationGracePeriodSeconds = new(int64(60))
		n.set(sizedPod(t, 1, "memory=16Mi/64Mi"), slow)
		time.Sleep(time.Second)
		n.requireStatus("b", "Running, slow: ready")

		n.set(sizedPod(t, 2, "memory=16Mi/32Mi"))
		time.Sleep(5 * time.Second)
		c, ok := rt.Container("b/slow")
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State, "the container of the other pod still terminates")
		requireResources(t, rt, 2, 0, 32*mib)
		require.Equal(t, "memory=16Mi/32Mi", resizeOf(n.status("a")))
		time.Sleep(time.Minute)
		require.Contains(t, n.removedPods(), "b")
	})
}

// If the response of a call that creates a sandbox or container is lost, CRI-O returns the existing object to the next call.
func TestLostResponsesOnCRIOReturnExistingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mu sync.Mutex
		lost := map[string]bool{}
		via := &critest.Interceptor{
			Runtime: &critest.CRIO{SummaryRuntime: critest.SummaryRuntime{Runtime: rt}},
			Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
				err := call(ctx)
				mu.Lock()
				defer mu.Unlock()
				if first := !lost[op]; err == nil && first && (op == "RunPodSandbox" || op == "CreateContainer") {
					lost[op] = true
					return &cri.Error{Op: op, Err: cri.ErrUnavailable}
				}
				return err
			},
		}
		n := startAgent(t, rt, via, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(5 * time.Minute)
		n.requireStatus("a", "Running, main: ready")
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, lost, 2)
	})
}
