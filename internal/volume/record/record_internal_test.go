// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

const good = `{"version":1,"uid":"u1","pod":"default/web","volumes":[{"name":"x","plugin":"kubernetes.io/empty-dir","dir":"volumes/kubernetes.io~empty-dir/x"}]}`

func TestRecordWrittenReadAndRemoved(t *testing.T) {
	r, err := parseRecord([]byte(good), "u1")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "u1")
	require.NoError(t, r.Write(dir))
	again, err := Read(dir)
	require.NoError(t, err)
	assert.Equal(t, r, again)
	require.NoError(t, r.Remove(dir))
	require.NoError(t, r.Remove(dir))
	assert.NoDirExists(t, dir)
}

// The metadata of a claim does not enlarge the record. A too large record is not written, because it could not be read and
// the pod would stay Terminating.
func TestTooLargeRecordNotWritten(t *testing.T) {
	meta := metav1.ObjectMeta{
		Annotations: map[string]string{"a": strings.Repeat("x", 250<<10), "volume.beta.kubernetes.io/mount-options": "ro"}, Labels: map[string]string{},
	}
	for i := range 5000 {
		meta.Labels[fmt.Sprint("example.com/", i)] = "x"
		meta.Finalizers = append(meta.Finalizers, fmt.Sprint("example.com/", i))
	}
	r := Pod{UID: "u1", Name: "default/web"}
	for i := range 40 {
		name := fmt.Sprint("v", i)
		v := Volume{Name: name, Plugin: "kubernetes.io/csi", Dir: "volumes/kubernetes.io~csi/pv" + name}
		pv := &corev1.PersistentVolume{ObjectMeta: *meta.DeepCopy()}
		pv.Name = "pv" + name
		v.Claim, v.PV = claim.TrimForRecord(&corev1.PersistentVolumeClaim{ObjectMeta: meta}, pv)
		r.Volumes = append(r.Volumes, v)
	}
	dir := filepath.Join(t.TempDir(), "u1")
	require.NoError(t, r.Write(dir))
	again, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, "ro", again.Volumes[39].PV.Annotations["volume.beta.kubernetes.io/mount-options"])
	info, err := os.Stat(filepath.Join(dir, recordName))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(100_000))

	larger := r
	larger.Volumes = slices.Clone(r.Volumes)
	larger.Volumes[0].PV = larger.Volumes[0].PV.DeepCopy()
	larger.Volumes[0].PV.Spec.MountOptions = []string{strings.Repeat("x", maxRecord)}
	require.ErrorContains(t, larger.Write(dir), "pod default/web has 40 volumes of 42")
	kept, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, again, kept, "the previous record is kept")
}

func TestReadRefusesDamagedRecords(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                        "",
		"cut off":                      good[:len(good)-1],
		"two":                          good + good,
		"another version":              strings.Replace(good, `"version":1`, `"version":2`, 1),
		"another pod":                  strings.Replace(good, `"u1"`, `"u2"`, 1),
		"no name":                      strings.Replace(good, `"name":"x"`, `"name":""`, 1),
		"no plugin":                    strings.Replace(good, "kubernetes.io/empty-dir", "", 1),
		"another place":                strings.Replace(good, "volumes/", "../u2/volumes/", 1),
		"separator in the plugin name": strings.ReplaceAll(strings.ReplaceAll(good, "kubernetes.io/empty-dir", "..//.."), "kubernetes.io~empty-dir", "..~~.."),
		"duplicate volume name":        strings.Replace(good, `"name":"x"`, `"name":"x","also":["x"]`, 1),
		"invalid second name":          strings.Replace(good, `"name":"x"`, `"name":"x","also":[".."]`, 1),
		"empty device name":            strings.Replace(good, `"name":"x"`, `"name":"x","device":{"name":""}`, 1),
		"device outside":               strings.Replace(good, `"name":"x"`, `"name":"x","device":{"name":"d","dir":"../x"}`, 1),
		"device anywhere":              strings.Replace(good, `"name":"x"`, `"name":"x","device":{"name":"d","mapDir":"/x"}`, 1),
		"device, long":                 strings.Replace(good, `"name":"x"`, `"name":"x","device":{"name":"d","data":{"k":"`+strings.Repeat("x", maxDeviceData)+`"}}`, 1),
		"no device":                    strings.Replace(strings.Replace(good, `"name":"x"`, `"name":"x","block":true`, 1), "volumes/", "volumeDevices/", 1),
		"block device in the directory for volumes": strings.Replace(good, `"name":"x"`, `"name":"x","block":true,"device":{"name":"d","mapDir":"m"}`, 1),
		"too much": `{"version":1,"uid":"` + strings.Repeat("x", maxRead) + `"}`,
	} {
		_, err := parseRecord([]byte(text), "u1")
		require.Error(t, err, name)
		assert.Less(t, len(err.Error()), 1000, name)
	}
}

// Each volume of an accepted record has its own directory below the directory of the pod.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"version":1,"uid":"u1","volumes":[{"name":"x","also":["y"],"plugin":"a/b","dir":"volumeDevices/a~b/z","block":true,"device":{"name":"d","dir":"s","mapDir":"m","data":{"k":"v"}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data, "u1")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, v := range r.Volumes {
			dir := filepath.Join("/pods/u1", v.Dir)
			rest, below := strings.CutPrefix(dir, "/pods/u1/volumes/")
			if v.Block {
				rest, below = strings.CutPrefix(dir, "/pods/u1/volumeDevices/")
			}
			if !below || strings.Count(rest, "/") != 1 || seen[dir] {
				t.Errorf("volume %q at %q", v.Name, dir)
			}
			seen[dir] = true
			if d := v.Device; d != nil {
				for _, dir := range []string{d.Dir, d.MapDir} {
					if at := filepath.Join("/plugins", dir); at != "/plugins" && !strings.HasPrefix(at, "/plugins/") {
						t.Errorf("device of volume %q at %q", v.Name, at)
					}
				}
			}
		}
	})
}
