// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// CRI-O reports a command that timed out as success with exit code -1.
func TestExecSyncTimeoutOfCRIO(t *testing.T) {
	for name, row := range map[string]struct {
		code    int32
		timeout time.Duration
		takes   time.Duration
		want    error
	}{
		"command timed out":                   {-1, time.Second, time.Second, context.DeadlineExceeded},
		"no timeout":                          {-1, 0, 0, nil},
		"runtime returned before the timeout": {-1, time.Minute, 0, nil},
		"command exited at the timeout":       {137, time.Millisecond, 10 * time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialStub(t, stubResponses{"ExecSync": func(ctx context.Context, _ any) (any, error) {
				select {
				case <-time.After(row.takes):
				case <-ctx.Done():
				}
				return &v1.ExecSyncResponse{Stderr: []byte("command timed out"), ExitCode: row.code}, nil
			}}, remote.Options{})
			result, err := c.ExecSync(t.Context(), "c", []string{"sleep", "60"}, row.timeout)
			require.ErrorIs(t, err, row.want)
			if row.want == nil {
				assert.EqualValues(t, row.code, result.ExitCode)
			}
		})
	}
}

// The request for the stats of one pod names its sandbox: CRI-O then responds while it stops a container of another pod.
func TestPodContainerStatsNamesSandbox(t *testing.T) {
	c := dialStub(t, stubResponses{"ListContainerStats": func(_ context.Context, q any) (any, error) {
		if q.(*v1.ListContainerStatsRequest).GetFilter().GetPodSandboxId() != "s" {
			return nil, status.Error(codes.NotFound, "no such sandbox")
		}
		return &v1.ListContainerStatsResponse{Stats: []*v1.ContainerStats{{Attributes: &v1.ContainerAttributes{Id: "c"}}}}, nil
	}}, remote.Options{})
	stats, err := c.PodContainerStats(t.Context(), "s")
	require.NoError(t, err)
	require.Len(t, stats, 1)
	assert.Equal(t, "c", stats[0].ID)
	stats, err = c.PodContainerStats(t.Context(), "gone")
	require.NoError(t, err)
	assert.Empty(t, stats)
}

// Stopping and removing an object that CRI-O no longer has succeeds.
func TestStopAndRemoveSucceedForUnknownIDOnCRIO(t *testing.T) {
	gone := respondAlways(nil, status.Error(codes.Unknown, "container with ID starting with c not found: ID does not exist"))
	c := dialStub(t, stubResponses{"StopContainer": gone, "RemoveContainer": gone, "Exec": gone}, remote.Options{})
	require.NoError(t, c.StopContainer(t.Context(), "c", 0))
	require.NoError(t, c.RemoveContainer(t.Context(), "c"))
	_, err := c.Exec(t.Context(), "c", []string{"sh"}, cri.StreamOptions{Stdout: true})
	require.ErrorIs(t, err, cri.ErrNotFound)
}
