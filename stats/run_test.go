// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/stats"
)

// Even if measuring all targets takes longer than their periods, so that some target is always due, new pods are measured
// and removed pods are not.
func TestRunMeasuresNewPodsDuringLongRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var name atomic.Value
		name.Store("old")
		var mu sync.Mutex
		asked := map[string]int{} // calls by pod
		count := func(name string) int {
			mu.Lock()
			defer mu.Unlock()
			return asked[name]
		}
		c, err := stats.New(cgroupstest.New(cgroupstest.Options{}), cri.ListerFunc(func(context.Context) (cri.Snapshot, error) {
			p := cri.PodIdentity{Name: name.Load().(string), Namespace: "ns", UID: "uid"}
			return cri.Snapshot{
				Sandboxes:  []cri.Sandbox{{ID: "s", Pod: p}},
				Containers: []cri.Container{{ID: "c", SandboxID: "s", Name: "c", State: cri.ContainerRunning}},
			}, nil
		}), stats.Options{
			LogRoot: "/logs", LogPeriod: 10 * time.Second, HostsFile: func(string) string { return "/hosts" },
			Statfs: func(path string) (stats.Filesystem, error) {
				time.Sleep(8 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				name, _, _ := strings.Cut(strings.TrimPrefix(path, "/logs/ns_"), "_")
				asked[name]++
				return stats.Filesystem{}, fs.ErrNotExist
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		assert.Greater(t, count("old"), 20)
		name.Store("new")
		time.Sleep(time.Minute)
		old := count("old")
		assert.NotZero(t, count("new"))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, old, count("old"))
		assert.Greater(t, count("new"), 20)
		cancel()
		require.NoError(t, <-ended)
		time.Sleep(time.Minute) // for the measurement that was abandoned
	})
}
