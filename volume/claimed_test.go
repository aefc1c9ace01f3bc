// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// newPV returns a PV of gib GiB for the plugin for local volumes.
func newPV(name string, gib int64) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Name = name
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/data/" + name}
	pv.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(gib<<30, resource.BinarySI)}
	return pv
}

// podWithClaims returns a pod with one container that mounts the given claims.
func podWithClaims(uid string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "pod-"+uid, "default", types.UID(uid)
	c := corev1.Container{Name: "c"}
	for _, name := range claims {
		v := corev1.Volume{Name: "v-" + name}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + name})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// storage is a plugin with two bound claims: db is bound to pv1, and logs to pv2.
type storage struct {
	*volumetest.MemoryStager
	*volumetest.Claims
}

func newStorage() storage {
	s := storage{&volumetest.MemoryStager{}, &volumetest.Claims{}}
	s.Bind("default", "db", newPV("pv1", 1))
	s.Bind("default", "logs", newPV("pv2", 1))
	return s
}

func (s storage) options(root string) volume.Options { return s.optionsWith(root, s.MemoryStager) }

func (s storage) optionsWith(root string, p volume.Plugin) volume.Options {
	return volume.Options{Root: filepath.Join(root, "pods"), Plugins: map[string]volume.Plugin{volume.Local: p}, Claims: s.Claims}
}

// checkNothingLeft checks that no volume, device or pod directory remains, and that no call came in the wrong order.
func (s storage) checkNothingLeft(t *testing.T, root string) {
	t.Helper()
	assert.Empty(t, s.Volumes())
	assert.Empty(t, s.Staged())
	assert.Empty(t, s.Violations())
	assert.Empty(t, podDirs(t, filepath.Join(root, "pods")))
}

func TestSharedClaimStagedOnceAndUnstagedByLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := startAgent(t, s.options(root))
		first, second := podWithClaims("u1", "db"), podWithClaims("u2", "db", "logs")
		require.Empty(t, a.Check(first))
		require.NoError(t, a.Prepare(t.Context(), first))
		require.NoError(t, a.Prepare(t.Context(), second))
		assert.Equal(t, []string{"pv1", "pv2"}, s.Staged())
		assert.Equal(t, []string{"stage pv1", "set up u1/v-db"}, s.Calls()[:2])
		l := podspec.Launch{}
		require.NoError(t, a.Container(t.Context(), first, &first.Spec.Containers[0], &l))
		assert.Equal(t, map[string]podspec.Volume{"v-db": {HostPath: filepath.Join(root, "pods/u1/volumes/kubernetes.io~local-volume/pv1")}}, l.Volumes)

		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Equal(t, []string{"pv1", "pv2"}, s.Staged())
		require.NoError(t, a.Release(t.Context(), "u2"))
		s.checkNothingLeft(t, root)
	})
}

// The devices are known from the records only, because the API server is unavailable.
func TestRestartedAgentUnstagesByRecordsWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := startAgent(t, s.options(root))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db", "logs")))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		a.stop()

		s.FailCalls(errors.New("there is no API server"))
		a = startAgent(t, s.options(root))
		require.NoError(t, a.Release(t.Context(), "u1"), "the record suffices for the release")
		assert.Equal(t, []string{"pv1"}, s.Staged(), "the device stays staged for the other pod")
		a.Update(podWithClaims("u2", "db"))
		time.Sleep(time.Minute)
		require.ErrorContains(t, a.WaitError("u2"), "there is no API server")
		assert.Equal(t, []string{"u2/v-db"}, s.Volumes(), "the volume stays set up while the API server is unavailable")

		s.FailCalls(nil)
		time.Sleep(2 * time.Minute)
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		require.NoError(t, a.Release(t.Context(), "u2"))
		s.checkNothingLeft(t, root)
	})
}

func TestPrepareRefusesUnboundClaimAndNotifiesWhenBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s, w := t.TempDir(), newStorage(), &watcher{ready: make(chan struct{}, 10), fail: make(chan error)}
		o := s.options(root)
		o.Watcher = w
		a := startAgent(t, o)
		<-w.ready
		p, began := podWithClaims("u1", "db", "missing"), time.Now()
		err := a.Prepare(t.Context(), p)
		require.ErrorContains(t, err, `volumes of pod default/pod-u1: set up volume "v-missing": error processing PVC default/missing: `)
		assert.Zero(t, time.Since(began))
		synctest.Wait()
		assert.Equal(t, []string{"u1/v-db"}, s.Volumes())

		told := make(chan string, 10)
		a.Notify(func(uids ...string) { told <- uids[0] })
		w.changed(volume.KindClaim, "default", "other")
		w.changed(volume.KindClaim, "other", "missing")
		assert.Empty(t, told)
		s.Bind("default", "missing", newPV("pv3", 1))
		w.changed(volume.KindClaim, "default", "missing")
		require.Equal(t, "u1", <-told)
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Equal(t, []string{"u1/v-db", "u1/v-missing"}, s.Volumes())
		w.changed(volume.KindPV, "", "pv9")
		assert.Empty(t, told)
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.checkNothingLeft(t, root)
	})
}

func TestPrepareRefusesUnusablePVs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(pv *corev1.PersistentVolume)
		want   string
	}{
		"removed": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}
		}, "there is no plugin for rbd volumes"},
		"no source":    {func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{} }, "there is no plugin for  volumes"},
		"block":        {func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, "but is specified in volumeMounts"},
		"another node": {func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = affinityTo("n2") }, "no matching NodeSelectorTerms"},
		"options": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
			pv.Spec.MountOptions = []string{"hard"}
		}, "mount options are not supported for this volume type"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, s := t.TempDir(), newStorage()
				pv := newPV("pv1", 1)
				test.change(pv)
				s.Bind("default", "db", pv)
				o := s.options(root)
				o.Plugins[volume.HostPath] = &volumetest.MemoryPlugin{}
				o.NodeLabels = func() map[string]string { return map[string]string{corev1.LabelHostname: "n1"} }
				a := startAgent(t, o)
				require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u1", "db")), test.want)
				require.NoError(t, a.Release(t.Context(), "u1"))
				assert.Empty(t, s.Calls())
			})
		})
	}
}

// affinityTo returns a node affinity to one node.
func affinityTo(node string) *corev1.VolumeNodeAffinity {
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: "In", Values: []string{node}}}}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
}

func TestReadWriteOncePodWaitsForOtherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		pv := newPV("pv1", 1)
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		s.Bind("default", "db", pv)
		o := s.options(root)
		o.WaitTimeout = 10 * time.Second
		a := startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		err := a.Prepare(t.Context(), podWithClaims("u2", "db"))
		require.ErrorContains(t, err, "volume uses the ReadWriteOncePod access mode and is already in use by another pod")
		assert.Contains(t, a.recordedEvents()[0], `pod-u2 Warning FailedMount: MountVolume.SetUp failed for volume "pv1" : volume uses`)
		began := time.Now()
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		assert.Zero(t, time.Since(began), "the pod does not wait for its back-off")
		require.NoError(t, a.Release(t.Context(), "u2"))
		s.checkNothingLeft(t, root)
	})
}

func TestClaimWithTwoNamesSetUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := startAgent(t, s.options(root))
		p := podWithClaims("u1", "db")
		again := p.Spec.Volumes[0].DeepCopy()
		again.Name, again.PersistentVolumeClaim.ReadOnly = "again", true
		p.Spec.Volumes = append(p.Spec.Volumes, *again)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "again", MountPath: "/again"})
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Equal(t, []string{"stage pv1", "set up u1/v-db"}, s.Calls())
		for range 2 {
			l := podspec.Launch{}
			require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &l))
			path := filepath.Join(root, "pods/u1/volumes/kubernetes.io~local-volume/pv1")
			assert.Equal(t, map[string]podspec.Volume{"v-db": {HostPath: path}, "again": {HostPath: path, ReadOnly: true}}, l.Volumes)
			a.stop()
			a = startAgent(t, s.options(root))
			require.NoError(t, a.Prepare(t.Context(), p))
		}
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.checkNothingLeft(t, root)
	})
}

// The PV of the claim has the name of another volume: both would have the same directory.
func TestPrepareRefusesVolumeNamedLikePV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s, m := t.TempDir(), newStorage(), &volumetest.MemoryPlugin{}
		pv := newPV("twin", 1)
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "one", Path: "/"}}
		s.Bind("default", "db", pv)
		o := s.options(root)
		o.Plugins[volume.NFS] = m
		a := startAgent(t, o)
		p := podWithClaims("u1", "db")
		inline := corev1.Volume{Name: "twin"}
		inline.NFS = &corev1.NFSVolumeSource{Server: "other", Path: "/"}
		p.Spec.Volumes = append(p.Spec.Volumes, inline)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "twin", MountPath: "/twin"})
		const dir = "volumes/kubernetes.io~nfs/twin"
		require.ErrorContains(t, a.Prepare(t.Context(), p), `set up volume "twin": volume "v-db" has its directory, `+dir)
		require.NoError(t, a.Release(t.Context(), "u1"))

		slices.Reverse(p.Spec.Volumes)
		require.ErrorContains(t, a.Prepare(t.Context(), p), `set up volume "v-db": volume "twin" has its directory, `+dir)
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
	})
}

func TestVolumeExpandedOncePerNodeWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s, w := t.TempDir(), newStorage(), &watcher{ready: make(chan struct{}, 10), fail: make(chan error)}
		o := s.options(root)
		o.Watcher = w
		grown := make(chan int64, 10)
		o.Hooks.Expanded = func(_ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume, size int64) {
			grown <- size >> 30
		}
		a := startAgent(t, o)
		<-w.ready
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		n := len(s.Calls())
		growPV := func(gib int64) {
			pv, err := s.PersistentVolume(t.Context(), "pv1")
			require.NoError(t, err)
			pv = pv.DeepCopy()
			pv.Spec.Capacity = newPV("", gib).Spec.Capacity
			s.Put(nil, pv)
		}
		growPV(2)
		w.changed(volume.KindPV, "", "pv1")
		synctest.Wait()
		assert.Equal(t, []string{"expand pv1 from 1073741824 to 2147483648"}, s.Calls()[n:])
		growPV(3)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"expand pv1 from 2147483648 to 3221225472"}, s.Calls()[n+1:], "the larger PV is found without a notification")
		time.Sleep(10 * time.Minute)
		assert.Len(t, s.Calls(), n+2)
		assert.Equal(t, []int64{2, 3}, []int64{<-grown, <-grown})
		assert.Empty(t, grown)
		assert.Contains(t, a.recordedEvents()[0], `Normal FileSystemResizeSuccessful: NodeExpandVolume succeeded for volume "pv1"`)

		s.FailCalls(errors.New("no answer"))
		time.Sleep(10 * time.Minute)
		assert.Len(t, a.recordedEvents(), 2, "no event for an unavailable API server")
		require.NoError(t, a.WaitError("u1"))
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Release(t.Context(), "u2"))
		s.checkNothingLeft(t, root)
	})
}

func TestFailedExpansionFailsSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		pvc, err := s.PersistentVolumeClaim(t.Context(), "default", "db")
		require.NoError(t, err)
		pvc.Status.Capacity = nil
		var mu sync.Mutex
		fault := errors.New("bad superblock")
		a := startAgent(t, s.optionsWith(root, &volumetest.FaultyPlugin{Plugin: s.MemoryStager, ExpandFault: func(context.Context, volume.Volume) error {
			mu.Lock()
			defer mu.Unlock()
			return fault
		}}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, a.Prepare(ctx, podWithClaims("u1", "db")), `set up volume "v-db": expand volume to 1073741824 bytes: bad superblock`)
		mu.Lock()
		fault = nil
		mu.Unlock()
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.checkNothingLeft(t, root)

		p := podWithClaims("u2", "db")
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		require.NoError(t, a.Prepare(t.Context(), p))
		events := a.recordedEvents()
		assert.Contains(t, events[len(events)-1], "Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed requested read-only file system")
		require.NoError(t, a.Release(t.Context(), "u2"))
	})
}
