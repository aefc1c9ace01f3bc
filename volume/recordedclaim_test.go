// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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

// unsharedPlugin is a plugin whose volumes with a claim have no device.
type unsharedPlugin struct{ *volumetest.MemoryPlugin }

// pvWithGroup returns a PV whose files have a supplemental group.
func pvWithGroup(name string) *corev1.PersistentVolume {
	pv := newPV(name, 1)
	pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "4321", corev1.LastAppliedConfigAnnotation: "{}"}
	return pv
}

// A container of the pod can be restarted, with the supplemental groups of the PV.
func TestRecordedClaimUsedWhileAPIServerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m, claims := t.TempDir(), &volumetest.MemoryPlugin{}, &volumetest.Claims{}
		claims.Bind("default", "db", pvWithGroup("pv1"))
		o := memoryOptions(root, m)
		o.Claims, o.Plugins = claims, map[string]volume.Plugin{volume.Local: unsharedPlugin{m}}
		p := podWithClaims("u1", "db")
		a := startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), p))
		require.Equal(t, []int64{4321}, a.SupplementalGroups(p))
		a.stop()
		text, err := os.ReadFile(filepath.Join(root, "u1", "volumes.json"))
		require.NoError(t, err)
		require.NotContains(t, string(text), corev1.LastAppliedConfigAnnotation)

		claims.FailCalls(errors.New("no API server"))
		a = startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), p))
		require.Equal(t, []int64{4321}, a.SupplementalGroups(p))
		var l podspec.Launch
		require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &l))
		require.NotEmpty(t, l.Volumes["v-db"].HostPath)
		require.Empty(t, a.recordedEvents())
		require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u2", "db")), "no API server", "a pod without recorded claim needs the API server")
		require.NoError(t, a.Release(t.Context(), "u2"))
		time.Sleep(5 * time.Minute)
		require.NoError(t, a.WaitError("u1"))
		claims.FailCalls(nil)
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Release(t.Context(), "u2"))
		assert.Empty(t, m.Volumes())
		a.stop()
	})
}

func TestRecordedClaimNotUsedIfLostOrNotMounted(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s storage){
		"lost": func(t *testing.T, s storage) {
			pvc, err := s.PersistentVolumeClaim(t.Context(), "default", "db")
			require.NoError(t, err)
			pvc = pvc.DeepCopy()
			pvc.Status.Phase = corev1.ClaimLost
			s.Put(pvc, nil)
		},
		"not mounted": func(_ *testing.T, s storage) { s.FailCalls(errors.New("no API server")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, s := t.TempDir(), newStorage()
				a := startAgent(t, s.optionsWith(root, s.MemoryStager))
				require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
				a.stop()
				change(t, s)
				calls := len(s.Calls())
				a = startAgent(t, s.optionsWith(root, s.MemoryStager))
				require.Error(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
				require.Len(t, s.Calls(), calls)
				require.NoError(t, a.Release(t.Context(), "u1"))
				s.checkNothingLeft(t, root)
			})
		})
	}
}

func TestRecordWithClaimOfAnotherVolumeIsDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := startAgent(t, s.optionsWith(root, s.MemoryStager))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		a.stop()
		path := filepath.Join(root, "pods", "u1", "volumes.json")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var record map[string]any
		require.NoError(t, json.Unmarshal(text, &record))
		one := record["volumes"].([]any)[0].(map[string]any)
		one["persistentVolume"].(map[string]any)["metadata"].(map[string]any)["name"] = "pv2"
		text, err = json.Marshal(record)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		a = startAgent(t, s.optionsWith(root, s.MemoryStager))
		require.ErrorContains(t, a.Release(t.Context(), "u1"), `volume "v-db": recorded claim is not that of "pv1"`)
	})
}
