// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// allCalls makes each call of a FullRuntime except StreamEvents, for a sandbox and a container in it.
func allCalls(rt critest.FullRuntime, sandbox, container string) map[string]func(ctx context.Context) error {
	spec := cri.ImageSpec{Image: "busybox"}
	drop := func(_ any, err error) error { return err }
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "other", Name: "other"}}
	return map[string]func(ctx context.Context) error{
		"List":             func(ctx context.Context) error { return drop(rt.List(ctx)) },
		"ListPod":          func(ctx context.Context) error { return drop(rt.ListPod(ctx, "web")) },
		"PodSandboxStatus": func(ctx context.Context) error { return drop(rt.SandboxStatus(ctx, sandbox)) },
		"ContainerStatus":  func(ctx context.Context) error { return drop(rt.ContainerStatus(ctx, container)) },
		"RunPodSandbox":    func(ctx context.Context) error { return drop(rt.RunSandbox(ctx, config)) },
		"CreateContainer": func(ctx context.Context) error {
			return drop(rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "second", Image: spec}, &cri.SandboxConfig{}))
		},
		"StartContainer": func(ctx context.Context) error {
			return rt.StartContainer(ctx, strings.TrimSuffix(container, "app-0")+"second-0")
		},
		"ExecSync":           func(ctx context.Context) error { return drop(rt.ExecSync(ctx, container, []string{"true"}, 0)) },
		"ReopenContainerLog": func(ctx context.Context) error { return rt.ReopenContainerLog(ctx, container) },
		"UpdateContainerResources": func(ctx context.Context) error {
			return rt.UpdateContainer(ctx, container, &cri.Resources{}, nil)
		},
		"UpdatePodSandboxResources": func(ctx context.Context) error {
			return rt.UpdateSandbox(ctx, sandbox, &cri.Resources{}, &cri.Resources{})
		},
		"ListContainerStats":  func(ctx context.Context) error { return drop(rt.ContainerStats(ctx)) },
		"ListPodSandboxStats": func(ctx context.Context) error { return drop(rt.SandboxStats(ctx)) },
		"Version":             func(ctx context.Context) error { return drop(rt.Version(ctx)) },
		"Status":              func(ctx context.Context) error { return drop(rt.Status(ctx)) },
		"RuntimeConfig":       func(ctx context.Context) error { return drop(rt.CgroupDriver(ctx)) },
		"ListImages":          func(ctx context.Context) error { return drop(rt.ListImages(ctx)) },
		"ImageStatus":         func(ctx context.Context) error { return drop(rt.ImageStatus(ctx, spec)) },
		"ImageFsInfo":         func(ctx context.Context) error { return drop(rt.ImageUsage(ctx)) },
		"PullImage":           func(ctx context.Context) error { return drop(rt.PullImage(ctx, spec, nil, nil)) },
		"RemoveImage":         func(ctx context.Context) error { return rt.RemoveImage(ctx, spec) },
		"StopContainer":       func(ctx context.Context) error { return rt.StopContainer(ctx, container, 0) },
		"RemoveContainer":     func(ctx context.Context) error { return rt.RemoveContainer(ctx, container) },
		"StopPodSandbox":      func(ctx context.Context) error { return rt.StopSandbox(ctx, sandbox) },
		"RemovePodSandbox":    func(ctx context.Context) error { return rt.RemoveSandbox(ctx, sandbox) },
	}
}

// callOrder is an order in which all calls succeed.
var callOrder = []string{
	"List", "ListPod", "PodSandboxStatus", "ContainerStatus", "RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync",
	"ReopenContainerLog", "UpdateContainerResources", "UpdatePodSandboxResources", "ListContainerStats", "ListPodSandboxStats",
	"Version", "Status", "RuntimeConfig", "ListImages", "ImageStatus", "ImageFsInfo", "PullImage", "RemoveImage", "StopContainer",
	"RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
}

// Every capability passes through the Interceptor, so that tests can delay each and let it fail.
func TestInterceptorSeesEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var seen []string
		refused := errors.New("refused")
		refuse := false
		via := &critest.Interceptor{
			Runtime: critest.SummaryRuntime{Runtime: rt},
			Latency: func(string, string) time.Duration { return 2 * time.Second },
			Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
				seen = append(seen, op)
				if refuse {
					return refused
				}
				return call(ctx)
			},
		}
		sandbox, container := launchPod(t, rt, "web", "app")
		calls := allCalls(via, sandbox, container)
		require.Len(t, calls, len(callOrder))
		for _, op := range callOrder {
			begin, before := time.Now(), len(rt.Calls())
			require.NoError(t, calls[op](t.Context()), op)
			require.Equal(t, 2*time.Second, time.Since(begin), op)
			require.Len(t, rt.Calls(), before+1, op)

			short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			require.ErrorIs(t, calls[op](short), context.DeadlineExceeded, op)
			cancel()
			require.Len(t, rt.Calls(), before+1, "%s has no effect if its context ends during the latency", op)
		}
		refuse = true
		for _, op := range callOrder {
			require.ErrorIs(t, calls[op](t.Context()), refused, op)
		}
		require.Equal(t, callOrder, slices.Compact(slices.Clone(seen[:2*len(callOrder)])))
		require.Equal(t, callOrder, seen[2*len(callOrder):])
	})
}

// A call whose response is lost has taken effect.
func TestInterceptorLosesResultAfterContextEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		_, id := launchPod(t, rt, "web", "app")
		via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Latency: func(string, string) time.Duration { return 2 * time.Second }}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, via.StopContainer(ctx, id, 0), context.DeadlineExceeded)
		c, _ := rt.Container(id)
		require.Equal(t, cri.ContainerExited, c.State)
	})
}

// If Around neither makes the call nor returns an error, the caller gets an error, not an empty result.
func TestInterceptorFailsWhenAroundMakesNoCall(t *testing.T) {
	via := &critest.Interceptor{
		Runtime: critest.SummaryRuntime{Runtime: critest.New(critest.Options{})},
		Around:  func(context.Context, string, string, func(context.Context) error) error { return nil },
	}
	_, err := via.List(t.Context())
	require.EqualError(t, err, "List: the call was not made")
}

// Events arrive with a delay: events without delay would hide actions of an agent before it receives them.
func TestInterceptorDelaysEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Latency: func(string, string) time.Duration { return 4 * time.Second }}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var late []time.Duration
		wg.Go(func() {
			err := via.StreamEvents(ctx, func(e cri.Event) error {
				late = append(late, time.Since(e.Time))
				return nil
			})
			assert.ErrorIs(t, err, context.Canceled)
		})
		time.Sleep(3 * time.Second)
		launchPod(t, rt, "web", "app")
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		require.Len(t, late, 4)
		for _, d := range late {
			require.Equal(t, 2*time.Second, d)
		}
	})
}

// KillWith sets the reason of the exit, for example that of the OOM killer.
func TestKillWithSetsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		_, id := launchPod(t, rt, "web", "app")
		require.NoError(t, rt.KillWith("web/app", critest.Exit{After: time.Second, Code: 137, Reason: "OOMKilled", Message: "out of memory"}))
		c, _ := rt.Container(id)
		require.Equal(t, cri.ContainerRunning, c.State)
		time.Sleep(2 * time.Second)
		c, _ = rt.Container(id)
		require.Equal(t, cri.ContainerExited, c.State)
		require.EqualValues(t, 137, c.ExitCode)
		require.Equal(t, "OOMKilled", c.Reason)
		require.Equal(t, "out of memory", c.Message)
	})
}

// Script.Started plays the first actions of a program, before other goroutines observe its start.
func TestStartedHookRunsBeforeStartReturns(t *testing.T) {
	var rt *critest.Runtime
	var seen []string
	rt = critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
		s := critest.Script{Started: func(c cri.Container) {
			now, ok := rt.Container(c.ID) // no lock is held
			assert.True(t, ok)
			seen = append(seen, c.ID+" "+now.State.String())
		}}
		if c.Name == "broken" {
			s.StartError = errors.New("no")
		}
		return s
	}})
	sandbox, id := launchPod(t, rt, "web", "app")
	require.Equal(t, []string{id + " running"}, seen)
	broken, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "broken"}, &cri.SandboxConfig{})
	require.NoError(t, err)
	require.Error(t, rt.StartContainer(t.Context(), broken))
	require.Len(t, seen, 1, "the Started hook is not called for a failed start")
}
