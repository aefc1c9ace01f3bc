// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// A container of the pod can be restarted at once. The volume is updated as soon as possible.
func TestRecoveredVolumeUsableIfUpdateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m, p := t.TempDir(), &volumetest.MemoryPlugin{}, podWithConfigMaps("u1", "a")
		a := startAgent(t, memoryOptions(root, m))
		require.NoError(t, a.Prepare(t.Context(), p))
		a.stop()

		var available atomic.Bool
		var updates atomic.Int32
		faulty := &volumetest.FaultyPlugin{Plugin: m, AfterSetUp: func(v volume.Volume, err error) error {
			switch {
			case available.Load():
				return err
			case v.Update:
				updates.Add(1)
				return errors.New("no route")
			default:
				assert.True(t, v.Recovered)
				return &volume.StaleError{Err: errors.New("no route")}
			}
		}}
		a = startAgent(t, memoryOptions(root, faulty))
		began := time.Now()
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Zero(t, time.Since(began))
		require.NoError(t, a.WaitError("u1"))
		var l podspec.Launch
		require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &l))
		assert.NotEmpty(t, l.Volumes["a"].HostPath)
		assert.Empty(t, a.recordedEvents(), "Prepare of a stale but usable volume emits no event")

		time.Sleep(5 * time.Second)
		assert.Greater(t, updates.Load(), int32(1))
		assert.Contains(t, a.recordedEvents()[0], corev1.EventTypeWarning+" FailedMount")
		available.Store(true)
		time.Sleep(5 * time.Second)
		calls := len(m.Calls())
		time.Sleep(30 * time.Second)
		assert.Len(t, m.Calls(), calls, "the volume is up to date")
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
	})
}
