// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// With CacheDir, the objects of pods stay available while the API server is unavailable, also to a restarted agent. No other
// user can read the files.
func TestObjectCacheStoresObjects(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows files have no owner and mode")
	}
	dir := filepath.Join(t.TempDir(), "kept")
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{CacheDir: dir}, true)
		require.NoError(t, w.server.Put(configMap("c", "1"), secret("s", "geheim"), secret("unused", "x"), configMap("gone", "1")))
		for _, name := range []string{"c", "gone"} {
			_, err := w.ConfigMap(t.Context(), "shop", name)
			require.NoError(t, err)
		}
		_, err := w.Volumes().Secret(t.Context(), "shop", "s")
		require.NoError(t, err)
		_, err = w.Secret(t.Context(), "shop", "unused")
		require.NoError(t, err)
		require.NoError(t, w.server.Remove(configMap("gone", "")))
		_, err = w.ConfigMap(t.Context(), "shop", "gone")
		require.ErrorIs(t, err, fs.ErrNotExist)
		p := podWithVolume("c")
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}}
		w.Retain([]*corev1.Pod{p})
	})
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	}
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{CacheDir: dir}, true)
		for name, fault := range map[string]apiservertest.Fault{"away": {Disconnect: true}, "hang": {Hang: true}, "expired": {Code: http.StatusUnauthorized}} {
			remove := w.server.Inject(fault)
			began := time.Now()
			o, err := w.ConfigMap(t.Context(), "shop", "c")
			require.NoError(t, err, name)
			require.Equal(t, "1", o.Data["k"])
			require.Less(t, time.Since(began), 4*time.Second)
			s, err := w.Volumes().Secret(t.Context(), "shop", "s")
			require.NoError(t, err, name)
			require.Equal(t, "geheim", string(s.Data["k"]))
			_, err = w.Secret(t.Context(), "shop", "unused")
			require.Error(t, err)
			remove()
		}
		w.server.Fail("get", "configmaps", http.StatusForbidden)
		_, err := w.ConfigMap(t.Context(), "shop", "c")
		require.True(t, apierrors.IsForbidden(err), "a forbidden object is not served from the cache")
	})
}

func TestOpenObjectCacheRefusesForeignDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows files have no owner and mode")
	}
	root := t.TempDir()
	_, err := openObjectCache("relative")
	require.ErrorContains(t, err, "must be absolute")
	require.NoError(t, os.Symlink(root, filepath.Join(root, "link")))
	_, err = openObjectCache(filepath.Join(root, "link"))
	require.ErrorContains(t, err, "it is L")
	full := filepath.Join(root, "home")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "photos"), 0o755))
	_, err = openObjectCache(full)
	require.ErrorContains(t, err, "the directory must have no other use")

	dir := filepath.Join(root, "kept")
	require.NoError(t, os.Mkdir(dir, 0o755))
	k, err := openObjectCache(dir)
	require.NoError(t, err)
	s := secret("s", "geheim")
	s.ResourceVersion = "1"
	require.NoError(t, k.storeObject(kindSecret, s))
	path := filepath.Join(dir, cacheFileName(kindSecret, "shop/s"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "."+filepath.Base(path)+".123.tmp"), []byte("half"), 0o600))
	k, err = openObjectCache(dir)
	require.NoError(t, err, "a temporary file of a killed process is removed")
	require.Len(t, k.files, 1)

	got := &corev1.Secret{}
	require.NoError(t, k.loadObject(kindSecret, "shop", "s", got))
	require.Equal(t, s.Data, got.Data)
	require.ErrorIs(t, k.loadObject(kindConfigMap, "shop", "s", &corev1.ConfigMap{}), fs.ErrNotExist)
	other := filepath.Join(dir, cacheFileName(kindSecret, "shop/t"))
	require.NoError(t, os.Rename(path, other))
	require.ErrorContains(t, k.loadObject(kindSecret, "shop", "t", got), "another object")
	require.NoError(t, os.WriteFile(other, []byte(`{"kind":"geheim`), 0o600))
	err = k.loadObject(kindSecret, "shop", "t", got)
	require.ErrorContains(t, err, "damaged")
	require.NotContains(t, err.Error(), "geheim")
	require.NoError(t, os.Remove(other))
	require.NoError(t, os.Symlink("/etc/passwd", other))
	require.Error(t, k.loadObject(kindSecret, "shop", "t", got), "symbolic links are not followed")
}

func TestObjectCacheHasLimits(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows files have no owner and mode")
	}
	k, err := openObjectCache(filepath.Join(t.TempDir(), "kept"))
	require.NoError(t, err)
	big := secret("big", strings.Repeat("x", 1<<20))
	require.NoError(t, k.storeObject(kindSecret, big))
	for k.bytes+k.bytes/int64(len(k.files)) < maxCacheBytes { // registers small files that do not exist, up to the limit
		name := fmt.Sprint(len(k.files))
		k.files[name] = cachedFile{size: 1 << 20}
		k.bytes += 1 << 20
	}
	small := secret("small", "1")
	require.NoError(t, k.storeObject(kindSecret, small))
	big.Name = "big2"
	require.ErrorIs(t, k.storeObject(kindSecret, big), errCacheFull)
	for i := len(k.files); i < maxCachedObjects; i++ {
		k.files[fmt.Sprint(i)] = cachedFile{}
	}
	small.Name = "one too many"
	require.ErrorIs(t, k.storeObject(kindSecret, small), errCacheFull)
	small.Name = "small"
	small.ResourceVersion = "2"
	require.NoError(t, k.storeObject(kindSecret, small))
}

// With CacheDir, an agent that starts while the API server is unavailable has the objects behind the claims and runtime
// classes of its pods. Other objects are not cached.
func TestObjectCacheKeepsClaimsOfPods(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows files have no owner and mode")
	}
	dir := filepath.Join(t.TempDir(), "kept")
	pod := podWithVolume("none")
	pod.Spec.RuntimeClassName = new("fast")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
	pvc, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	pvc.Namespace, pvc.Name, pvc.Spec.VolumeName = "shop", "data", "pv1"
	pvc.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "other": "1"}
	pv.Name = "pv1"
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "csi.example", VolumeHandle: "disk", NodeStageSecretRef: &corev1.SecretReference{Namespace: "infra", Name: "s"},
	}
	driver, attachment, class := &storagev1.CSIDriver{}, &storagev1.VolumeAttachment{}, &nodev1.RuntimeClass{Handler: "runf"}
	driver.Name, attachment.Name, class.Name = "csi.example", attachmentName("disk", "csi.example", "n1"), "fast"
	attachment.Status.AttachmentMetadata = map[string]string{"lun": "7"}
	stage := secret("s", "geheim")
	stage.Namespace = "infra"
	ask := func(t *testing.T, w *world, wants error) {
		c, err := w.PersistentVolumeClaim(t.Context(), "shop", "data")
		require.ErrorIs(t, err, wants)
		v, err := w.PersistentVolume(t.Context(), "pv1")
		require.ErrorIs(t, err, wants)
		d, err := w.CSIDriver(t.Context(), "csi.example")
		require.ErrorIs(t, err, wants)
		a, err := w.VolumeAttachment(t.Context(), attachment.Name)
		require.ErrorIs(t, err, wants)
		handler, ok := w.RuntimeClass("fast")
		require.Equal(t, wants == nil, ok)
		if wants != nil {
			return
		}
		require.Equal(t, "runf", handler)
		require.Equal(t, "pv1", c.Spec.VolumeName)
		require.Equal(t, "1", c.Annotations["other"])
		require.Equal(t, "disk", v.Spec.CSI.VolumeHandle)
		require.Equal(t, "csi.example", d.Name)
		require.Equal(t, "7", a.Status.AttachmentMetadata["lun"])
		s, err := w.Volumes().Secret(t.Context(), "infra", "s")
		require.NoError(t, err)
		require.Equal(t, "geheim", string(s.Data["k"]))
	}
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{CacheDir: dir}, true)
		require.NoError(t, w.server.Put(pvc, pv, driver, attachment, class, stage))
		synctest.Wait()
		ask(t, w, nil)
		w.Retain([]*corev1.Pod{pod})
	})
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 6)
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{CacheDir: dir}, false)
		w.server.Inject(apiservertest.Fault{Disconnect: true})
		ctx, end := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { require.NoError(t, w.Run(ctx)) })
		defer group.Wait()
		defer end()
		time.Sleep(time.Second)
		ask(t, w, nil)
		w.Retain([]*corev1.Pod{pod})
		ask(t, w, nil)
		w.Retain(nil)
		_, err := w.PersistentVolume(t.Context(), "pv1")
		require.Error(t, err)
	})
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	synctest.Test(t, func(t *testing.T) { ask(t, start(t, ObjectsOptions{CacheDir: dir}, true), fs.ErrNotExist) })
}
