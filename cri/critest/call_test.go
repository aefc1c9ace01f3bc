// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// The recorded calls of a script with timers, restarts and errors are identical in every run.
func TestCallsAreDeterministic(t *testing.T) {
	play := func(t *testing.T) (log []string) {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			begin := time.Now()
			rt := critest.New(critest.Options{Script: critest.FailFirst(2, critest.ExitAfter(10*time.Second, 1))})
			s := newPodConfig("web")
			sandbox, err := rt.RunSandbox(ctx, s)
			require.NoError(t, err)
			for attempt := range uint32(3) {
				id, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app", Attempt: attempt}, s)
				require.NoError(t, err)
				require.NoError(t, rt.StartContainer(ctx, id))
				time.Sleep(time.Minute)
				require.NoError(t, rt.StopContainer(ctx, id, 30*time.Second))
			}
			require.Error(t, rt.StartContainer(ctx, "none"))
			_, err = rt.RunSandbox(ctx, s)
			require.Error(t, err)
			for _, c := range rt.Calls() {
				log = append(log, fmt.Sprint(c.Time.Sub(begin), " ", c))
			}
			assert.Len(t, rt.Calls("StopContainer", "RunPodSandbox"), 5)
		})
		return log
	}
	want := []string{
		"0s RunPodSandbox default/web",
		"0s CreateContainer default/web/app",
		"0s StartContainer default/web/app",
		"1m0s StopContainer default/web/app grace=30s",
		"1m0s CreateContainer default/web/app",
		"1m0s StartContainer default/web/app",
		"2m0s StopContainer default/web/app grace=30s",
		"2m0s CreateContainer default/web/app",
		"2m0s StartContainer default/web/app",
		"3m0s StopContainer default/web/app grace=30s",
		"3m0s StartContainer none error=not found",
		"3m0s RunPodSandbox default/web error=already exists",
	}
	for range 3 {
		assert.Equal(t, want, play(t))
	}
}

func TestCallsKeepsNewest10000(t *testing.T) {
	rt := critest.New(critest.Options{})
	for i := range 10_001 {
		require.NoError(t, rt.StopSandbox(t.Context(), fmt.Sprint(i)))
	}
	calls := rt.Calls()
	require.Len(t, calls, 10_000)
	assert.Equal(t, "1", calls[0].ID)
}

// Every call with an ended context returns its error and has no effect.
func TestCallsFailWithEndedContext(t *testing.T) {
	rt := critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}
	sandbox, id := launchPod(t, rt, "web", "app")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newPodConfig("other")
	for op, call := range map[string]func() error{
		"List":             func() error { _, err := rt.List(ctx); return err },
		"ListPod":          func() error { _, err := rt.ListPod(ctx, "web-uid"); return err },
		"RunPodSandbox":    func() error { _, err := rt.RunSandbox(ctx, s); return err },
		"StopPodSandbox":   func() error { return rt.StopSandbox(ctx, sandbox) },
		"RemovePodSandbox": func() error { return rt.RemoveSandbox(ctx, sandbox) },
		"PodSandboxStatus": func() error { _, err := rt.SandboxStatus(ctx, sandbox); return err },
		"CreateContainer": func() error {
			_, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "b"}, s)
			return err
		},
		"StartContainer":            func() error { return rt.StartContainer(ctx, id) },
		"StopContainer":             func() error { return rt.StopContainer(ctx, id, 0) },
		"RemoveContainer":           func() error { return rt.RemoveContainer(ctx, id) },
		"ContainerStatus":           func() error { _, err := rt.ContainerStatus(ctx, id); return err },
		"ExecSync":                  func() error { _, err := rt.ExecSync(ctx, id, nil, 0); return err },
		"ReopenContainerLog":        func() error { return rt.ReopenContainerLog(ctx, id) },
		"UpdateContainerResources":  func() error { return rt.UpdateContainer(ctx, id, nil, nil) },
		"UpdatePodSandboxResources": func() error { return rt.UpdateSandbox(ctx, sandbox, nil, nil) },
		"ListContainerStats":        func() error { _, err := rt.ContainerStats(ctx); return err },
		"ListPodSandboxStats":       func() error { _, err := rt.SandboxStats(ctx); return err },
		"ListImages":                func() error { _, err := rt.ListImages(ctx); return err },
		"ImageStatus":               func() error { _, err := rt.ImageStatus(ctx, cri.ImageSpec{}); return err },
		"RemoveImage":               func() error { return rt.RemoveImage(ctx, cri.ImageSpec{}) },
		"ImageFsInfo":               func() error { _, err := rt.ImageUsage(ctx); return err },
		"PullImage":                 func() error { _, err := rt.PullImage(ctx, cri.ImageSpec{}, nil, nil); return err },
		"Version":                   func() error { _, err := rt.Version(ctx); return err },
		"Status":                    func() error { _, err := rt.Status(ctx); return err },
		"RuntimeConfig":             func() error { _, err := rt.CgroupDriver(ctx); return err },
		"GetContainerEvents":        func() error { return rt.StreamEvents(ctx, nil) },
	} {
		err := call()
		require.ErrorIs(t, err, context.Canceled, op)
		var e *cri.Error
		require.ErrorAs(t, err, &e, op)
		assert.Equal(t, op, e.Op)
	}
	c, ok := rt.Container(id)
	require.True(t, ok)
	assert.Equal(t, cri.ContainerRunning, c.State)
}

func TestFaultFuncsReplaceCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		f := &critest.Faults{
			Runtime: rt,
			StartContainerFunc: func(ctx context.Context, next cri.Runtime, id string) error {
				_ = next.StartContainer(ctx, id)
				return cri.ErrUnavailable
			},
			StopContainerFunc: func(ctx context.Context, _ cri.Runtime, _ string, _ time.Duration) error {
				return critest.Hang(ctx)
			},
			RunSandboxFunc: func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error) {
				time.Sleep(time.Minute)
				return next.RunSandbox(ctx, c)
			},
		}
		begin := time.Now()
		s := newPodConfig("web")
		sandbox, err := f.RunSandbox(t.Context(), s)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begin), "the call returns after the delay of the fault")

		id, err := f.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app"}, s)
		require.NoError(t, err)
		require.ErrorIs(t, f.StartContainer(t.Context(), id), cri.ErrUnavailable)
		c, _ := rt.Container(id)
		assert.Equal(t, cri.ContainerRunning, c.State, "the container runs although its response was lost")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, f.StopContainer(ctx, id, 0), context.DeadlineExceeded)
	})
}

// Around receives every call of cri.Runtime with its name and ID, and can act before and after it.
func TestFaultsAroundSeesEveryCall(t *testing.T) {
	ctx := t.Context()
	lost := errors.New("lost")
	var seen []string
	f := &critest.Faults{Runtime: critest.New(critest.Options{})}
	f.Around = func(_ context.Context, op, id string, call func() error) error {
		seen = append(seen, op+" "+id)
		if err := call(); err != nil {
			return err
		}
		return lost
	}
	s := newPodConfig("web")
	id, err := f.RunSandbox(ctx, s)
	require.ErrorIs(t, err, lost)
	assert.Empty(t, id)
	_, err = f.CreateContainer(ctx, "web-uid-0", &cri.ContainerConfig{Name: "app"}, s)
	require.ErrorIs(t, err, lost)
	for _, call := range []func(context.Context, string) error{f.StartContainer, f.RemoveContainer} {
		require.ErrorIs(t, call(ctx, "web-uid-app-0"), lost)
	}
	require.ErrorIs(t, f.StopContainer(ctx, "web-uid-app-0", 0), lost)
	require.ErrorIs(t, f.StopSandbox(ctx, "web-uid-0"), lost)
	snap, err := f.List(ctx)
	require.ErrorIs(t, err, lost)
	assert.Empty(t, snap)
	require.ErrorIs(t, f.RemoveSandbox(ctx, "web-uid-0"), lost)
	assert.Equal(t, []string{
		"RunPodSandbox web-uid", "CreateContainer web-uid-0", "StartContainer web-uid-app-0", "RemoveContainer web-uid-app-0",
		"StopContainer web-uid-app-0", "StopPodSandbox web-uid-0", "List ", "RemovePodSandbox web-uid-0",
	}, seen)
}

// All calls run concurrently under the race detector. Afterwards no object remains.
func TestConcurrentUse(t *testing.T) {
	rt := critest.New(critest.Options{Script: critest.SuiteScript})
	ctx, cancel := context.WithCancel(t.Context())
	var streams, pods sync.WaitGroup
	streams.Go(func() { _ = rt.StreamEvents(ctx, func(cri.Event) error { return nil }) })
	for i := range 50 {
		pods.Go(func() {
			sandbox, id := launchPod(t, rt, fmt.Sprint("pod", i), "app")
			_, _ = rt.ExecSync(ctx, id, nil, time.Second)
			_ = rt.UpdateContainer(ctx, id, &cri.Resources{CPUShares: 5}, nil)
			_ = rt.Kill(id, 1)
			_, _ = rt.ListPod(ctx, fmt.Sprint("pod", i, "-uid"))
			_, _ = rt.SandboxStats(ctx)
			_ = rt.StopContainer(ctx, id, time.Second)
			_ = rt.Calls()
			assert.NoError(t, rt.RemoveSandbox(ctx, sandbox))
		})
	}
	pods.Wait()
	cancel()
	streams.Wait()
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, snap.Sandboxes)
	assert.Empty(t, snap.Containers)
}
