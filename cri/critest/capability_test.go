// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

func TestExecSyncPlaysScript(t *testing.T) {
	sleep := func(ctx context.Context, _ []string) (cri.ExecResult, error) {
		select {
		case <-time.After(10 * time.Second):
			return cri.ExecResult{ExitCode: 4}, nil
		case <-ctx.Done():
			return cri.ExecResult{}, ctx.Err()
		}
	}
	for name, row := range map[string]struct {
		exec    critest.ExecFunc
		timeout time.Duration
		killAt  time.Duration // time of the kill of the container; zero: none
		want    cri.ExecResult
		wantErr error
		took    time.Duration
	}{
		"no script":                      {nil, 0, 0, cri.ExecResult{}, nil, 0},
		"script to its end":              {sleep, 0, 0, cri.ExecResult{ExitCode: 4}, nil, 10 * time.Second},
		"script ends before the timeout": {sleep, 11 * time.Second, 0, cri.ExecResult{ExitCode: 4}, nil, 10 * time.Second},
		"script exceeds the timeout":     {sleep, 1500 * time.Millisecond, 0, cri.ExecResult{}, context.DeadlineExceeded, 2 * time.Second},
		"container is killed":            {sleep, 0, time.Second, cri.ExecResult{ExitCode: 137}, nil, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
					return critest.Script{Exec: row.exec}
				}})
				_, id := launchPod(t, rt, "web", "app")
				if row.killAt > 0 {
					time.AfterFunc(row.killAt, func() { assert.NoError(t, rt.Kill(id, 1)) })
				}
				begin := time.Now()
				got, err := rt.ExecSync(t.Context(), id, []string{"true"}, row.timeout)
				require.ErrorIs(t, err, row.wantErr)
				assert.Equal(t, row.want, got)
				assert.Equal(t, row.took, time.Since(begin))
			})
		})
	}
}

func TestBreakStreamsEndsOpenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		gone := errors.New("runtime restarts")
		var types []cri.EventType
		ended := make(chan error, 1)
		go func() {
			ended <- rt.StreamEvents(t.Context(), func(e cri.Event) error {
				assert.Equal(t, "web", e.Pod.Name)
				types = append(types, e.Type)
				return nil
			})
		}()
		synctest.Wait()
		sandbox, _ := launchPod(t, rt, "web", "app")
		rt.BreakStreams(gone)
		require.ErrorIs(t, <-ended, gone)
		require.NoError(t, rt.RemoveSandbox(t.Context(), sandbox))
		assert.Equal(t, []cri.EventType{cri.EventCreated, cri.EventStarted, cri.EventCreated, cri.EventStarted}, types)
	})
}

func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		pinned := critest.NewImage("pause:1", 5)
		pinned.RepoDigests = []string{"pause@sha256:1"}
		denied := errors.New("denied")
		rt := critest.New(critest.Options{
			Images: []cri.Image{pinned},
			Pull: func(_ context.Context, i cri.ImageSpec, auth *cri.Auth) (cri.Image, error) {
				time.Sleep(time.Minute)
				if auth == nil {
					return cri.Image{}, denied
				}
				return critest.NewImage(i.Image, 7), nil
			},
		})
		create := func(name, image string) (cri.Container, error) {
			s := newPodConfig(name)
			sandbox, err := rt.RunSandbox(ctx, s)
			require.NoError(t, err)
			_, err = rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app", Image: cri.ImageSpec{Image: image}}, s)
			c, _ := rt.Container(name + "/app")
			return c, err
		}
		c, err := create("a", "pause:1")
		require.NoError(t, err)
		assert.Equal(t, "pause@sha256:1", c.ImageRef)
		_, err = create("b", "web:1")
		require.ErrorIs(t, err, cri.ErrNotFound)

		_, err = rt.PullImage(ctx, cri.ImageSpec{Image: "web:1"}, nil, nil)
		require.ErrorIs(t, err, denied)
		ref, err := rt.PullImage(ctx, cri.ImageSpec{Image: "web:1"}, &cri.Auth{}, nil)
		require.NoError(t, err)
		c, err = create("c", ref)
		require.NoError(t, err)
		assert.Equal(t, critest.NewImage("web:1", 0).ID, c.ImageID)

		usage, err := rt.ImageUsage(ctx)
		require.NoError(t, err)
		assert.Equal(t, uint64(12), *usage.Images[0].UsedBytes)
		for range 2 {
			require.NoError(t, rt.RemoveImage(ctx, cri.ImageSpec{Image: "web:1"}))
		}
		_, err = rt.ImageStatus(ctx, cri.ImageSpec{Image: "web:1"})
		require.ErrorIs(t, err, cri.ErrNotFound)
		images, err := rt.ListImages(ctx)
		require.NoError(t, err)
		assert.Equal(t, []cri.Image{pinned}, images)
	})
}

func TestEveryImageExistsWithoutOptionImages(t *testing.T) {
	rt := critest.New(critest.Options{})
	img, err := rt.ImageStatus(t.Context(), cri.ImageSpec{Image: "any:1"})
	require.NoError(t, err)
	assert.Equal(t, []string{"any:1"}, img.RepoTags)
	_, id := launchPod(t, rt, "web", "app")
	c, _ := rt.Container(id)
	assert.NotEmpty(t, c.ImageRef)
}

// An update is visible in later lists, but not in earlier ones.
func TestUpdateContainerChangesLaterLists(t *testing.T) {
	ctx := t.Context()
	rt := critest.New(critest.Options{})
	_, id := launchPod(t, rt, "web", "app")
	require.NoError(t, rt.UpdateContainer(ctx, id, &cri.Resources{CPUShares: 2, MemoryLimit: 1, Unified: map[string]string{"a": "1"}}, nil))
	before, _ := rt.Container(id)
	require.NoError(t, rt.UpdateContainer(ctx, id, &cri.Resources{MemoryLimit: 5, Unified: map[string]string{"b": "2"}}, nil))
	after, _ := rt.Container(id)
	assert.Equal(t, &cri.Resources{CPUShares: 2, MemoryLimit: 1, Unified: map[string]string{"a": "1"}}, before.Resources)
	assert.Equal(t, &cri.Resources{CPUShares: 2, MemoryLimit: 5, Unified: map[string]string{"a": "1", "b": "2"}}, after.Resources)
	require.ErrorIs(t, rt.UpdateContainer(ctx, "none", nil, nil), cri.ErrNotFound)
	require.ErrorIs(t, rt.UpdateSandbox(ctx, id, nil, nil), cri.ErrNotFound)
}

func TestStatsCoverRunningContainers(t *testing.T) {
	ctx := t.Context()
	bytes := uint64(42)
	rt := critest.New(critest.Options{Usage: func(c cri.Container) cri.ContainerStats {
		return cri.ContainerStats{Memory: &cri.MemoryUsage{WorkingSetBytes: &bytes}}
	}})
	launchPod(t, rt, "web", "app")
	launchPod(t, rt, "job", "done")
	require.NoError(t, rt.Kill("job/done", 0))
	require.NoError(t, rt.Kill("job-uid-0", 0))
	stats, err := rt.ContainerStats(ctx)
	require.NoError(t, err)
	require.Len(t, stats, 1)
	assert.Equal(t, "app", stats[0].Name)
	assert.Equal(t, bytes, *stats[0].Memory.WorkingSetBytes)
	pods, err := rt.SandboxStats(ctx)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, stats, pods[0].Containers)
}

func TestStatus(t *testing.T) {
	down := cri.Status{Conditions: []cri.Condition{{Type: cri.ConditionNetworkReady, Reason: "NoPlugin"}}}
	for name, row := range map[string]struct {
		status func() cri.Status
		want   bool
	}{
		"ready": {nil, true},
		"down":  {func() cri.Status { return down }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := critest.New(critest.Options{Status: row.status}).Status(t.Context())
			require.NoError(t, err)
			c, ok := s.Condition(cri.ConditionNetworkReady)
			require.True(t, ok)
			assert.Equal(t, row.want, c.Status)
		})
	}
}

func TestSummaryRuntimeOmitsDetails(t *testing.T) {
	rt := critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}
	sandbox, id := launchPod(t, rt, "web", "app")
	require.NoError(t, rt.Kill(id, 3))
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	pod, err := rt.ListPod(t.Context(), "web-uid")
	require.NoError(t, err)
	for _, c := range slices.Concat(snap.Containers, pod.Containers) {
		assert.Equal(t, cri.ContainerExited, c.State)
		assert.Zero(t, c.ExitCode)
		assert.Zero(t, c.FinishedAt)
	}
	for _, sb := range slices.Concat(snap.Sandboxes, pod.Sandboxes) {
		assert.Empty(t, sb.IPs)
	}
	c, err := rt.ContainerStatus(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, int32(3), c.ExitCode)
	sb, err := rt.SandboxStatus(t.Context(), sandbox)
	require.NoError(t, err)
	assert.NotEmpty(t, sb.IPs)
}
