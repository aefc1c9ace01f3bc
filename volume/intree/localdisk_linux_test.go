// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// disks is a node with claims to local directories and devices.
type disks struct {
	*volume.Volumes
	t       *testing.T
	root    string
	objects *objects.Memory
	events  chan string
}

func newDisks(t *testing.T) *disks {
	mounttest.Need(t)
	d := &disks{t: t, root: t.TempDir(), objects: &objects.Memory{}, events: make(chan string, 100)}
	v, err := volume.New(volume.Options{
		Root: filepath.Join(d.root, "pods"), Plugins: intree.Plugins(intree.Options{}), Claims: d.objects, WaitTimeout: 10 * time.Second,
		Hooks: volume.Hooks{Event: func(_ *corev1.Pod, _, reason, message string) { d.events <- reason + ": " + message }},
	})
	require.NoError(t, err)
	d.Volumes = v
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		table, err := mount.ReadTable()
		require.NoError(t, err)
		assert.Empty(t, mount.MountsBelow(table, d.root), "no mount is left")
	})
	return d
}

// bindClaim binds a claim to a PV with the path; the two have the same name.
func (d *disks) bindClaim(name, path string, change func(*corev1.PersistentVolume)) {
	pv := &corev1.PersistentVolume{}
	pv.Name = name
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: path}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name}
	if change != nil {
		change(pv)
	}
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name, pvc.Spec.VolumeName, pvc.Spec.AccessModes = "default", name, name, pv.Spec.AccessModes
	pvc.Spec.Resources.Requests = pv.Spec.Capacity
	require.NoError(d.t, d.objects.PutPersistentVolume(pv))
	require.NoError(d.t, d.objects.PutPersistentVolumeClaim(pvc))
}

func setBlockMode(pv *corev1.PersistentVolume) {
	pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

// newPod returns a pod that uses a claim, as a file system or as a device.
func (d *disks) newPod(uid, claim, use string) *corev1.Pod {
	p := podtest.Pod(d.t, fmt.Sprintf(`{securityContext: {fsGroup: 4321}, volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}], containers: [{name: c, image: i, %s}]}`, claim, use))
	p.Name, p.UID = "pod-"+uid, types.UID(uid)
	return p
}

const (
	asMount  = "volumeMounts: [{name: data, mountPath: /data}]"
	asDevice = "volumeDevices: [{name: data, devicePath: /dev/data}]"
)

// requireFailure requires that act fails with an error that contains want. It retries with a longer timeout while act times out early.
func requireFailure(t *testing.T, want string, act func(ctx context.Context) error) {
	t.Helper()
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := act(ctx)
		cancel()
		require.Error(t, err)
		if strings.Contains(err.Error(), want) {
			return
		}
		require.Less(t, time.Since(began), time.Minute, "%v does not contain %q", err, want)
	}
}

// containerVolume returns volume "data" of p in the form in which package podspec receives it for a container.
func (d *disks) containerVolume(p *corev1.Pod) podspec.Volume {
	d.t.Helper()
	l := podspec.Launch{}
	require.NoError(d.t, d.Container(d.t.Context(), p, &p.Spec.Containers[0], &l))
	return l.Volumes["data"]
}

// The suite runs with a directory and with a block device.
func TestLocalPluginPassesSuite(t *testing.T) {
	needTools(t, "blkid", "mkfs.ext4", "fsck")
	for name, path := range map[string]func(t *testing.T) string{
		"directory": func(t *testing.T) string { return t.TempDir() },
		"disk":      func(t *testing.T) string { return mounttest.LoopDevice(t, 8<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			mounttest.Need(t)
			volumetest.TestPlugin(t, func(t *testing.T) volumetest.Subject {
				pv := &corev1.PersistentVolume{}
				pv.Name, pv.Spec.Local = "disk", &corev1.LocalVolumeSource{Path: path(t)}
				pod := podtest.Pod(t, "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]")
				return volumetest.Subject{Plugin: intree.Plugins(intree.Options{})[volume.Local], Name: volume.Local, Pod: pod, PV: pv, Mounted: true}
			})
		})
	}
}

// The files stay after the last release.
func TestLocalDirectoryBoundForEachPodWithFirstFSGroup(t *testing.T) {
	d := newDisks(t)
	data := filepath.Join(d.root, "data")
	require.NoError(t, os.Mkdir(data, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "file"), []byte("x"), 0o600))
	d.bindClaim("disk", data, nil)
	p := d.newPod("u1", "disk", asMount)
	require.NoError(t, d.Prepare(t.Context(), p))
	v := d.containerVolume(p)
	assert.Equal(t, filepath.Join(d.root, "pods/u1/volumes/kubernetes.io~local-volume/disk"), v.HostPath)
	assert.Equal(t, "4321", groupOf(t, filepath.Join(v.HostPath, "file")))

	other := d.newPod("u2", "disk", asMount)
	other.Spec.SecurityContext.FSGroup = new(int64(99))
	require.NoError(t, d.Prepare(t.Context(), other))
	assert.Equal(t, "AlreadyMountedVolume: The requested fsGroup is 99, but the volume disk has GID 4321. The volume may not be shareable.", <-d.events)
	assert.Equal(t, "4321", groupOf(t, filepath.Join(v.HostPath, "file")))

	readonly := d.newPod("u3", "disk", asMount)
	readonly.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	require.NoError(t, d.Prepare(t.Context(), readonly))
	assert.True(t, d.containerVolume(readonly).ReadOnly)
	require.ErrorIs(t, os.WriteFile(filepath.Join(d.containerVolume(readonly).HostPath, "new"), nil, 0o600), syscall.EROFS)

	usage, err := d.Usage(t.Context(), "u1", "data")
	require.NoError(t, err)
	assert.NotZero(t, usage.CapacityBytes)
	for _, uid := range []string{"u1", "u2", "u3"} {
		require.NoError(t, d.Release(t.Context(), uid))
	}
	assert.FileExists(t, filepath.Join(data, "file"))
	assert.NoDirExists(t, filepath.Join(d.root, "pods/u1"))
}

// The first set-up was interrupted between bind mount and change of the group.
func TestLocalGroupChangedAfterInterruptedSetUp(t *testing.T) {
	mounttest.Need(t)
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	file := filepath.Join(data, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(dir, 0o750))
	require.NoError(t, mount.Bind(data, dir, mount.BindOptions{}))
	t.Cleanup(func() { assert.NoError(t, new(mount.Unmounter).Unmount(context.WithoutCancel(t.Context()), dir)) })
	pv := &corev1.PersistentVolume{}
	pv.Name, pv.Spec.Local = "disk", &corev1.LocalVolumeSource{Path: data}
	plugin := intree.Plugins(intree.Options{})[volume.Local]
	setUp := func(gid int64, change func(*volume.Volume)) string {
		pod := podtest.Pod(t, fmt.Sprintf("{securityContext: {fsGroup: %d}, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}", gid))
		v := volume.Volume{Pod: pod, Source: &pod.Spec.Volumes[0], Name: "v", SpecName: "disk", Plugin: volume.Local, Dir: dir, PV: pv, Warn: func(string, string) {}}
		change(&v)
		_, err := plugin.SetUp(t.Context(), v)
		require.NoError(t, err)
		return groupOf(t, file)
	}
	before := groupOf(t, file)
	assert.Equal(t, before, setUp(4321, func(v *volume.Volume) { v.Update = true }))
	assert.Equal(t, before, setUp(4321, func(v *volume.Volume) { v.UsedByOtherPod = true }), "only the first pod changes the group")
	assert.Equal(t, before, setUp(4321, func(v *volume.Volume) { v.ReadOnly = true }))
	assert.Equal(t, "4321", setUp(4321, func(v *volume.Volume) { v.Recovered = true }))
	require.NoError(t, os.Chown(file, -1, 99))
	assert.Equal(t, "99", setUp(4321, func(v *volume.Volume) { v.Recovered = true }), "a recovered volume whose root has the group is not walked: containers may use it")
	assert.Equal(t, "4321", setUp(4321, func(*volume.Volume) {}), "a normal set-up walks the volume: an earlier walk may be incomplete")
}

// The files stay between two mounts of the disk.
func TestLocalDiskFormattedAndMountedOnce(t *testing.T) {
	needTools(t, "blkid", "mkfs.ext4", "fsck", "resize2fs")
	d := newDisks(t)
	d.bindClaim("disk", mounttest.LoopDevice(t, 8<<20), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"noatime", "nodev"} })
	staged := filepath.Join(d.root, "plugins/kubernetes.io/local-volume/mounts/disk")
	for round := range 2 {
		p, other := d.newPod("u1", "disk", asMount), d.newPod("u2", "disk", asMount)
		require.NoError(t, d.Prepare(t.Context(), p))
		require.NoError(t, d.Prepare(t.Context(), other))
		file := filepath.Join(d.containerVolume(p).HostPath, "file")
		if round == 0 {
			require.NoError(t, os.WriteFile(file, []byte("kept"), 0o600))
		}
		assert.FileExists(t, filepath.Join(d.containerVolume(other).HostPath, "file"))
		mounted, err := mount.IsMountPoint(staged)
		require.NoError(t, err)
		assert.True(t, mounted)
		require.NoError(t, d.Release(t.Context(), "u1"))
		assert.FileExists(t, filepath.Join(staged, "file"))

		elsewhere := filepath.Join(d.root, "elsewhere")
		require.NoError(t, os.MkdirAll(elsewhere, 0o755))
		require.NoError(t, mount.Bind(staged, elsewhere, mount.BindOptions{}))
		requireFailure(t, "is also mounted at "+elsewhere, func(ctx context.Context) error { return d.Release(ctx, "u2") })
		require.NoError(t, new(mount.Unmounter).Unmount(t.Context(), elsewhere))
		require.NoError(t, d.Release(t.Context(), "u2"))
		assert.NoDirExists(t, staged)
	}
}

func TestLocalBlockVolumeIsDevice(t *testing.T) {
	d := newDisks(t)
	device := mounttest.LoopDevice(t, 1<<20)
	d.bindClaim("disk", device, setBlockMode)
	p := d.newPod("u1", "disk", asDevice)
	require.NoError(t, d.Prepare(t.Context(), p))
	v := d.containerVolume(p)
	link := filepath.Join(d.root, "pods/u1/volumeDevices/kubernetes.io~local-volume/disk")
	assert.Equal(t, podspec.Volume{Device: link}, v)
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, device, target)
	bound := filepath.Join(d.root, "plugins/kubernetes.io~local-volume/volumeDevices/disk/u1")
	info, err := os.Stat(bound)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeDevice)
	assert.Equal(t, 1, countLoopDevices(t, bound), "a loop device keeps the bound device open")
	usage, err := d.Usage(t.Context(), "u1", "data")
	require.NoError(t, err)
	assert.Equal(t, uint64(1<<20), usage.CapacityBytes)
	require.NoError(t, d.Prepare(t.Context(), p))

	require.NoError(t, d.Release(t.Context(), "u1"))
	assert.Zero(t, countLoopDevices(t, bound))
	assert.NoDirExists(t, filepath.Dir(bound))
	assert.NoDirExists(t, filepath.Join(d.root, "pods/u1"))

	d.bindClaim("dir", d.root, setBlockMode)
	requireFailure(t, d.root+" is not a block device", func(ctx context.Context) error { return d.Prepare(ctx, d.newPod("u2", "dir", asDevice)) })
	require.NoError(t, d.Release(t.Context(), "u2"))
}

// The path is on a file system whose server has exited. The release of the pod is not delayed.
func TestHungLocalPathDelaysOnlySetUp(t *testing.T) {
	d := newDisks(t)
	dead := t.TempDir()
	abort := mounttest.DeadFUSE(t, dead)
	defer abort()
	defer func() { _ = new(mount.Unmounter).Unmount(context.WithoutCancel(t.Context()), dead) }()
	d.bindClaim("disk", filepath.Join(dead, "x"), nil)
	requireFailure(t, `stage volume "data": `, func(ctx context.Context) error { return d.Prepare(ctx, d.newPod("u1", "disk", asMount)) })
	began := time.Now()
	require.NoError(t, d.Release(t.Context(), "u1"))
	assert.Less(t, time.Since(began), 30*time.Second)
}

// A fake mount(8) records its arguments and mounts a tmpfs.
func TestNFSMountCommand(t *testing.T) {
	d := newDisks(t)
	bin, log := t.TempDir(), filepath.Join(d.root, "log")
	script := "#!/bin/sh\necho \"$@\" >> " + log + "\nfor last; do :; done\ncase \"$*\" in *hung*) sleep 60;; *refused*) echo access denied by server; exit 32;; esac\nexec " + findMount(t) + " -t tmpfs none \"$last\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "mount"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	nfs := func(server, path string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: path}}
			pv.Spec.MountOptions = []string{"vers=4.2", "hard"}
		}
	}
	d.bindClaim("share", "", nfs("2001:db8::1", "/export"))
	p := d.newPod("u1", "share", asMount)
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	require.NoError(t, d.Prepare(t.Context(), p))
	dir := filepath.Join(d.root, "pods/u1/volumes/kubernetes.io~nfs/share")
	assert.Equal(t, podspec.Volume{HostPath: dir, ReadOnly: true}, d.containerVolume(p))
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, "-t nfs -o hard,ro,vers=4.2 -- [2001:db8::1]:/export "+dir+"\n", string(data))
	require.NoError(t, d.Release(t.Context(), "u1"))

	d.bindClaim("denied", "", nfs("server", "/refused"))
	requireFailure(t, "exit status 32: access denied by server", func(ctx context.Context) error { return d.Prepare(ctx, d.newPod("u2", "denied", asMount)) })
	require.Eventually(t, func() bool { // an attempt may be running
		_, err := os.Stat(filepath.Join(d.root, "pods/u2/volumes/kubernetes.io~nfs/denied"))
		return errors.Is(err, fs.ErrNotExist)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, d.Release(t.Context(), "u2"))

	d.bindClaim("hangs", "", nfs("server", "/hung"))
	requireFailure(t, "set up is under way", func(ctx context.Context) error { return d.Prepare(ctx, d.newPod("u3", "hangs", asMount)) })
	began := time.Now()
	require.NoError(t, d.Release(t.Context(), "u3"))
	assert.Less(t, time.Since(began), 30*time.Second, "the hung mount command is killed with its child processes")
}

func findMount(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("mount")
	require.NoError(t, err)
	return path
}

func needTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("this node has no " + tool)
		}
	}
}

// groupOf returns the group of a file.
func groupOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Gid)
}

// countLoopDevices returns the number of loop devices that are attached to the file path.
func countLoopDevices(t *testing.T, path string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if strings.TrimSpace(string(data)) == path {
			n++
		}
	}
	return n
}

// The name of the directory identifies a local volume and an NFS volume whose PV is unknown.
func TestFindDeviceOfVolumeWithoutPV(t *testing.T) {
	n := newNode(t)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: t.TempDir()}
	for _, block := range []bool{false, true} {
		v := volume.Volume{SpecName: "disk", Plugin: volume.Local, Block: block, PV: pv}
		want, err := n.plugins[volume.Local].(volume.Stager).Device(t.Context(), v)
		require.NoError(t, err)
		v.PV = nil
		found, err := n.plugins[volume.Local].(volume.DeviceFinder).FindDevice(v)
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
	found, err := n.plugins[volume.NFS].(volume.DeviceFinder).FindDevice(volume.Volume{SpecName: "share", Plugin: volume.NFS})
	require.NoError(t, err)
	require.Zero(t, found)
}
