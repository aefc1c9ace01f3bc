// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// newPodConfig returns the config of a sandbox of the named pod.
func newPodConfig(pod string) *cri.SandboxConfig {
	return &cri.SandboxConfig{Pod: cri.PodIdentity{UID: pod + "-uid", Name: pod, Namespace: "default"}}
}

// launchPod runs a pod with one started container and returns their IDs.
func launchPod(t *testing.T, rt cri.Runtime, pod, name string) (sandbox, container string) {
	t.Helper()
	s := newPodConfig(pod)
	sandbox, err := rt.RunSandbox(t.Context(), s)
	require.NoError(t, err)
	container, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: name}, s)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), container))
	return sandbox, container
}

// exitState is the part of a container's status that describes its exit.
type exitState struct {
	After  time.Duration // time since the start
	Code   int32
	Reason string
}

func exitStateOf(t *testing.T, rt *critest.Runtime, ref string) exitState {
	t.Helper()
	c, ok := rt.Container(ref)
	require.True(t, ok)
	require.Equal(t, cri.ContainerExited, c.State)
	return exitState{c.FinishedAt.Sub(c.StartedAt), c.ExitCode, c.Reason}
}

func TestScriptExitsByItself(t *testing.T) {
	for name, row := range map[string]struct {
		script critest.Script
		want   exitState
	}{
		"at once":       {critest.ExitAfter(0, 0), exitState{0, 0, "Completed"}},
		"later":         {critest.ExitAfter(time.Hour, 3), exitState{time.Hour, 3, "Error"}},
		"out of memory": {critest.OOMAfter(time.Minute), exitState{time.Minute, 137, "OOMKilled"}},
		"own reason":    {critest.Script{Exit: &critest.Exit{Reason: "Evicted"}}, exitState{0, 0, "Evicted"}},
		"slow starts":   {critest.Script{StartAfter: time.Minute, Exit: &critest.Exit{After: time.Second}}, exitState{time.Second, 0, "Completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return row.script }})
				begin := time.Now()
				launchPod(t, rt, "web", "app")
				assert.Equal(t, row.script.StartAfter, time.Since(begin))
				time.Sleep(2 * time.Hour)
				assert.Equal(t, row.want, exitStateOf(t, rt, "web/app"))
			})
		})
	}
}

func TestScriptExitsAfterStop(t *testing.T) {
	for name, row := range map[string]struct {
		script critest.Script
		signal cri.Signal
		grace  time.Duration
		want   exitState
	}{
		"default stop signal":                    {critest.Script{}, "", time.Minute, exitState{0, 143, "Error"}},
		"configured stop signal":                 {critest.Script{}, "SIGQUIT", time.Minute, exitState{0, 131, "Error"}},
		"exit within the grace period":           {critest.ExitAfterStop(5*time.Second, 0), "", time.Minute, exitState{5 * time.Second, 0, "Completed"}},
		"exit at the end of the grace period":    {critest.ExitAfterStop(5*time.Second, 0), "", 5 * time.Second, exitState{5 * time.Second, 0, "Completed"}},
		"exit after the grace period":            {critest.ExitAfterStop(5*time.Second, 0), "", 4 * time.Second, exitState{4 * time.Second, 137, "Error"}},
		"stop signal ignored":                    {critest.IgnoreTERM(), "", 30 * time.Second, exitState{30 * time.Second, 137, "Error"}},
		"grace period rounded up":                {critest.IgnoreTERM(), "", 1100 * time.Millisecond, exitState{2 * time.Second, 137, "Error"}},
		"longest grace period":                   {critest.ExitAfterStop(5*time.Second, 0), "", math.MaxInt64, exitState{5 * time.Second, 0, "Completed"}}, // the grace period must not count as expired
		"no grace":                               {critest.ExitAfterStop(0, 0), "", 0, exitState{0, 137, "Error"}},
		"exit by itself during the grace period": {critest.Script{Exit: &critest.Exit{After: 3 * time.Second, Code: 9}, Stop: &critest.Exit{After: critest.Never}}, "", time.Minute, exitState{3 * time.Second, 9, "Error"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
					return row.script
				}})
				s := newPodConfig("web")
				sandbox, err := rt.RunSandbox(t.Context(), s)
				require.NoError(t, err)
				id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app", StopSignal: row.signal}, s)
				require.NoError(t, err)
				require.NoError(t, rt.StartContainer(t.Context(), id))
				require.NoError(t, rt.StopContainer(t.Context(), id, row.grace))
				assert.Equal(t, row.want, exitStateOf(t, rt, id), "StopContainer returns after the exit of the container")
			})
		})
	}
}

func TestFailFirstDependsOnAttempt(t *testing.T) {
	script := critest.FailFirst(2, critest.ExitAfter(0, 1))
	assert.NotNil(t, script(&cri.ContainerConfig{Attempt: 0}).Exit)
	assert.NotNil(t, script(&cri.ContainerConfig{Attempt: 1}).Exit)
	assert.Nil(t, script(&cri.ContainerConfig{Attempt: 2}).Exit)
}

func TestFailedStartIsExitedWithStartError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no such file")
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.FailStart(broken) }})
		s := newPodConfig("web")
		sandbox, err := rt.RunSandbox(t.Context(), s)
		require.NoError(t, err)
		id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app"}, s)
		require.NoError(t, err)
		err = rt.StartContainer(t.Context(), id)
		require.ErrorIs(t, err, broken)
		assert.EqualError(t, err, "StartContainer web-uid-app-0: no such file")
		c, _ := rt.Container("web/app")
		assert.Equal(t, cri.ContainerExited, c.State)
		assert.Equal(t, int32(128), c.ExitCode)
		assert.Equal(t, "StartError", c.Reason)
		assert.Equal(t, "no such file", c.Message)
		assert.True(t, c.StartedAt.IsZero())
	})
}

// When the context of StopContainer ends during the grace period, the kill is cancelled; the signal has been sent.
func TestStopWithEndedContextDoesNotKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"stubborn": critest.IgnoreTERM(), "slow": critest.ExitAfterStop(time.Hour, 0),
		})})
		_, stubborn := launchPod(t, rt, "a", "stubborn")
		_, slow := launchPod(t, rt, "b", "slow")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, id := range []string{stubborn, slow} {
			go func() { assert.ErrorIs(t, rt.StopContainer(ctx, id, time.Minute), context.DeadlineExceeded) }()
		}
		time.Sleep(2 * time.Hour)
		c, _ := rt.Container(stubborn)
		assert.Equal(t, cri.ContainerRunning, c.State)
		assert.Equal(t, exitState{time.Hour, 0, "Completed"}, exitStateOf(t, rt, slow))
	})
}

// A slow start does not block other calls, and notices their changes when it completes.
func TestSlowStartDoesNotBlockOtherCalls(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(ctx context.Context, rt *critest.Runtime, sandbox, id string) error
		wantErr   string // error of StartContainer
	}{
		"started again": {func(ctx context.Context, rt *critest.Runtime, _, id string) error {
			if err := rt.StartContainer(ctx, id); err == nil {
				return errors.New("a second start succeeds")
			}
			return nil
		}, ""},
		"container removed": {func(ctx context.Context, rt *critest.Runtime, _, id string) error {
			if err := rt.RemoveContainer(ctx, id); err == nil {
				return errors.New("a starting container is removed")
			}
			return nil
		}, ""},
		"sandbox stopped": {func(ctx context.Context, rt *critest.Runtime, sandbox, _ string) error {
			return rt.StopSandbox(ctx, sandbox)
		}, "sandbox is not ready"},
		"sandbox removed": {func(ctx context.Context, rt *critest.Runtime, sandbox, _ string) error {
			return rt.RemoveSandbox(ctx, sandbox)
		}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
					return critest.Script{StartAfter: time.Minute}
				}})
				s := newPodConfig("web")
				sandbox, err := rt.RunSandbox(t.Context(), s)
				require.NoError(t, err)
				id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app"}, s)
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- rt.StartContainer(t.Context(), id) }()
				time.Sleep(time.Second)
				require.NoError(t, row.meanwhile(t.Context(), rt, sandbox, id))
				if row.wantErr == "" {
					require.NoError(t, <-done)
					return
				}
				require.ErrorContains(t, <-done, row.wantErr)
			})
		})
	}
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		sandbox, id := launchPod(t, rt, "web", "app")
		require.NoError(t, rt.Kill(sandbox, 0))
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		assert.Equal(t, cri.SandboxNotReady, snap.Sandboxes[0].State)
		assert.Equal(t, cri.ContainerRunning, snap.Containers[0].State, "the container runs on in its own namespaces")

		require.NoError(t, rt.Kill("web/app", 9))
		assert.Equal(t, exitState{0, 9, "Error"}, exitStateOf(t, rt, "web-uid/app"))
		require.EqualError(t, rt.Kill(id, 9), "Kill "+id+": container is exited")
		require.ErrorIs(t, rt.Kill("web/other", 9), cri.ErrNotFound)
	})
}

func TestReleasedAddressIsReusedLate(t *testing.T) {
	rt := critest.New(critest.Options{PodCIDR: netip.MustParsePrefix("10.1.0.0/30")})
	run := func(pod string) string {
		id, err := rt.RunSandbox(t.Context(), newPodConfig(pod))
		require.NoError(t, err)
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		return id + " " + snap.Sandboxes[len(snap.Sandboxes)-1].IPs[0]
	}
	assert.Equal(t, "a-uid-0 10.1.0.1", run("a"))
	assert.Equal(t, "b-uid-0 10.1.0.2", run("b"))
	require.NoError(t, rt.StopSandbox(t.Context(), "a-uid-0"))
	assert.Equal(t, "c-uid-0 10.1.0.3", run("c"))
	assert.Equal(t, "d-uid-0 10.1.0.1", run("d"))
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, snap.Sandboxes[0].IPs, "a stopped sandbox has no address")
	_, err = rt.RunSandbox(t.Context(), newPodConfig("e"))
	require.EqualError(t, err, "RunPodSandbox default/e: no address left in 10.1.0.0/30")
}

func TestIDsAreNeverReused(t *testing.T) {
	rt := critest.New(critest.Options{})
	for _, want := range []string{"web-uid-0", "web-uid-0-again-2", "web-uid-0-again-3"} {
		id, err := rt.RunSandbox(t.Context(), newPodConfig("web"))
		require.NoError(t, err)
		assert.Equal(t, want, id)
		require.NoError(t, rt.RemoveSandbox(t.Context(), id))
	}
}

// A new sandbox of the pod does not release the names of containers in the old sandbox, as in containerd and CRI-O.
func TestContainerNameIsReservedPerPod(t *testing.T) {
	rt := critest.New(critest.Options{})
	launchPod(t, rt, "web", "app")
	s := newPodConfig("web")
	s.Attempt = 1
	sandbox, err := rt.RunSandbox(t.Context(), s)
	require.NoError(t, err)
	_, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app"}, s)
	require.ErrorIs(t, err, cri.ErrAlreadyExists)
	_, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app", Attempt: 1}, s)
	require.NoError(t, err)
}

// Events at the same time occur in the order in which they were scheduled, in every run.
func TestSimultaneousExitsKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(time.Minute, 0)
		}})
		var want, got []string
		for i := range 20 {
			_, id := launchPod(t, rt, fmt.Sprint("pod", i), "app")
			want = append(want, id)
		}
		go rt.StreamEvents(t.Context(), func(e cri.Event) error {
			got = append(got, e.ID)
			return nil
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, want, got)
	})
}
