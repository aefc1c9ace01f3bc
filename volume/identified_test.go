// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// findingPlugin is a plugin that identifies volumes by their names on disk, except those in unknown.
type findingPlugin struct {
	*volumetest.MemoryStager
	unknown map[string]bool
}

func (p findingPlugin) Device(ctx context.Context, v volume.Volume) (volume.Device, error) {
	d, err := p.MemoryStager.Device(ctx, v)
	d.Attachable = true
	return d, err
}

func (p findingPlugin) FindDevice(v volume.Volume) (volume.Device, error) {
	if p.unknown[v.SpecName] {
		return volume.Device{}, errors.New("its file is missing")
	}
	return volume.Device{Name: v.SpecName, Dir: "memory/" + v.SpecName, Data: map[string]string{"of": v.SpecName}, Attachable: true}, nil
}

// adopting returns the options of an agent that takes the place of a kubelet.
func (s storage) adopting(root string, unknown map[string]bool) volume.Options {
	o := s.optionsWith(root, findingPlugin{s.MemoryStager, unknown})
	o.AdoptUnrecorded, o.Attacher = true, noAttacher{}
	return o
}

// noAttacher finds every volume attached.
type noAttacher struct{}

func (noAttacher) WaitForAttach(context.Context, volume.Volume) (string, error) { return "", nil }

// checkNothingSetUp checks that no volume and no device remains, and that no call came in the wrong order. The plugin leaves the directories.
func (s storage) checkNothingSetUp(t *testing.T) {
	t.Helper()
	assert.Empty(t, s.Volumes())
	assert.Empty(t, s.Staged())
	assert.Empty(t, s.Violations())
}

const claimDir = "volumes/kubernetes.io~local-volume/"

// A pod of a kubelet was deleted while neither program ran: no source lists it, and only the files on disk identify its volume.
func TestReleaseUnmountsVolumesOfUnlistedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		makeVolumes(t, filepath.Join(root, "pods"), "u1/"+claimDir+"pv1", "u1/"+claimDir+"pv2")
		a := startAgent(t, s.adopting(root, nil))
		time.Sleep(time.Minute)
		assert.Empty(t, s.Calls(), "the sources may list the pod later")
		a.stop()

		a = startAgent(t, s.adopting(root, nil))
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.ElementsMatch(t, []string{"tear down u1/~pv1", "tear down u1/~pv2", "unstage pv1", "unstage pv2"}, s.Calls())
		assert.Empty(t, a.Pods())
		assert.Empty(t, s.Violations())
		assert.Empty(t, a.reportedErrors())
		requireInUse(t, a)
	})
}

// The volume of the deleted pod is also that of a pod that still runs: the device stays until the release of the second pod.
func TestDeviceOfUnlistedPodStaysForListedPod(t *testing.T) {
	for name, adoptedFirst := range map[string]bool{"listed before the release": true, "listed after the release": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, s := t.TempDir(), newStorage()
				makeVolumes(t, filepath.Join(root, "pods"), "u1/"+claimDir+"pv1", "u2/"+claimDir+"pv1")
				a := startAgent(t, s.adopting(root, nil))
				if adoptedFirst {
					require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
				}
				require.NoError(t, a.Release(t.Context(), "u1"))
				assert.Contains(t, s.Calls(), "tear down u1/~pv1")
				assert.NotContains(t, s.Calls(), "unstage pv1")
				require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
				assert.Equal(t, []string{"u2/v-db"}, s.Volumes())
				requireInUse(t, a, "kubernetes.io/local-volume/pv1")
				require.NoError(t, a.Release(t.Context(), "u2"))
				assert.Contains(t, s.Calls(), "tear down u2/v-db")
				assert.NotContains(t, s.Calls(), "tear down u2/~pv1")
				assert.Contains(t, s.Calls(), "unstage pv1")
				s.checkNothingSetUp(t)
			})
		})
	}
}

// An agent that is killed during the teardown finds the remaining volumes again.
func TestReleaseOfUnlistedPodContinuesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		makeVolumes(t, filepath.Join(root, "pods"), "u1/"+claimDir+"pv1")
		plugin := &volumetest.FaultyPlugin{Plugin: s.MemoryStager, UnstageFault: func(context.Context, volume.Volume) error { return errors.New("busy") }}
		o := s.adopting(root, nil)
		o.Plugins[volume.Local] = findingFaulty{plugin}
		a := startAgent(t, o)
		require.ErrorContains(t, a.Release(t.Context(), "u1"), "busy")
		require.ErrorContains(t, a.Release(t.Context(), "u1"), "busy")
		requireInUse(t, a, "kubernetes.io/local-volume/pv1")
		a.stop()

		a = startAgent(t, s.adopting(root, nil))
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, a.Pods())
		assert.Contains(t, s.Calls(), "unstage pv1")
	})
}

// findingFaulty identifies volumes beside a plugin with faults.
type findingFaulty struct{ *volumetest.FaultyPlugin }

func (findingFaulty) FindDevice(v volume.Volume) (volume.Device, error) {
	return findingPlugin{}.FindDevice(v)
}

// A volume that its plugin cannot identify stays, and the error names it alone.
func TestReleaseRefusesVolumeThatPluginCannotIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		makeVolumes(t, filepath.Join(root, "pods"), "u1/"+claimDir+"pv1", "u1/"+claimDir+"pv2")
		a := startAgent(t, s.adopting(root, map[string]bool{"pv2": true}))
		require.EqualError(t, a.Release(t.Context(), "u1"), "release volumes of pod u1: volumes "+claimDir+"pv2 were set up by another program, and the pod is not known: "+
			"unmount them, and remove their directories")
		assert.Empty(t, s.Calls())
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db", "logs")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.checkNothingSetUp(t)
	})
}
