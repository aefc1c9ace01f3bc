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

// unshared is a plugin whose volumes with a claim are of one pod each.
type unshared struct{ *volumetest.MemoryPlugin }

// grouped returns a volume whose files are of a group.
func grouped(name string) *corev1.PersistentVolume {
	pv := persistent(name, 1)
	pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "4321", corev1.LastAppliedConfigAnnotation: "{}"}
	return pv
}

// An agent that is started while nobody can be asked about claims goes on with volumes as the record has their claims: a container that
// has ended is started again, with the groups of the volume. When somebody can be asked it goes on as ever.
func TestRecoveredClaimIsUsedAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m, claims := t.TempDir(), &volumetest.MemoryPlugin{}, &volumetest.Claims{}
		claims.Bind("default", "db", grouped("pv1"))
		o := memory(root, m)
		o.Claims, o.Plugins = claims, map[string]volume.Plugin{volume.Local: unshared{m}}
		p := claiming("u1", "db")
		a := start(t, o)
		require.NoError(t, a.Prepare(t.Context(), p))
		require.Equal(t, []int64{4321}, a.SupplementalGroups(p))
		a.stop()
		text, err := os.ReadFile(filepath.Join(root, "u1", "volumes.json"))
		require.NoError(t, err)
		require.NotContains(t, string(text), corev1.LastAppliedConfigAnnotation)

		claims.FailCalls(errors.New("no API server"))
		a = start(t, o)
		require.NoError(t, a.Prepare(t.Context(), p))
		require.Equal(t, []int64{4321}, a.SupplementalGroups(p))
		var l podspec.Launch
		require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &l))
		require.NotEmpty(t, l.Volumes["v-db"].HostPath)
		require.Empty(t, a.seen())
		require.ErrorContains(t, a.Prepare(t.Context(), claiming("u2", "db")), "no API server", "nobody has made that before")
		require.NoError(t, a.Release(t.Context(), "u2"))
		time.Sleep(5 * time.Minute)
		require.NoError(t, a.WaitError("u1"))
		claims.FailCalls(nil)
		require.NoError(t, a.Prepare(t.Context(), claiming("u2", "db")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Release(t.Context(), "u2"))
		assert.Empty(t, m.Volumes())
		a.stop()
	})
}

// What says that the pod cannot have the claim any more is no reason to go on with it, and neither is a volume of which nothing is mounted
// and that another node may have by now.
func TestRecoveredClaimIsNotUsed(t *testing.T) {
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
				a := start(t, s.with(root, s.MemoryStager))
				require.NoError(t, a.Prepare(t.Context(), claiming("u1", "db")))
				a.stop()
				change(t, s)
				calls := len(s.Calls())
				a = start(t, s.with(root, s.MemoryStager))
				require.Error(t, a.Prepare(t.Context(), claiming("u1", "db")))
				require.Len(t, s.Calls(), calls)
				require.NoError(t, a.Release(t.Context(), "u1"))
				s.nothing(t, root)
			})
		})
	}
}

// A record whose claim is that of another volume is damaged.
func TestRecordOfAnotherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := start(t, s.with(root, s.MemoryStager))
		require.NoError(t, a.Prepare(t.Context(), claiming("u1", "db")))
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
		a = start(t, s.with(root, s.MemoryStager))
		require.ErrorContains(t, a.Release(t.Context(), "u1"), `volume "v-db": what is kept of its claim is not that of "pv1"`)
	})
}
