// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/isolated"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// loop is a plugin with the loop device driver of hack/csidriver, which runs as a process.
type loop struct {
	*env
	binary, data string
	cmd          *exec.Cmd
}

// built is the path of the driver, which is built once for all tests.
var built string

var build = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "csidriver"); err != nil {
		return "", err
	}
	binary := filepath.Join(built, "csidriver")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../../hack/csidriver").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, err
})

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // for the race detector beside synctest (golang/go#78156)
	os.Exit(isolated.Run(isolated.Mounts, func() int {
		code := m.Run()
		if built != "" {
			_ = os.RemoveAll(built)
		}
		return code
	}))
}

const loopName = "loop.csi.example"

func newLoop(t *testing.T) *loop {
	t.Helper()
	mounttest.Need(t)
	dir := t.TempDir()
	l := &loop{env: &env{t: t, root: filepath.Join(dir, "root")}, binary: filepath.Join(dir, "csidriver"), data: filepath.Join(dir, "data")}
	built, err := build()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(built, l.binary))
	t.Cleanup(func() {
		l.kill()
		for _, device := range l.attachedDevices() {
			t.Errorf("loop device %s is still attached", device)
			_ = exec.Command("losetup", "-d", device).Run()
		}
	})
	c := driverObject(nil)
	c.drivers[loopName] = c.drivers["csi.example"]
	yes := true
	c.drivers[loopName].Spec.PodInfoOnMount = &yes
	require.NoError(t, os.MkdirAll(filepath.Join(l.root, "plugins_registry"), 0o750))
	l.startPlugin(csi.Options{Registry: filepath.Join(l.root, "plugins_registry"), NodeName: "n1", Drivers: c})
	l.start()
	return l
}

// start starts the driver and waits until it is registered.
func (l *loop) start() {
	l.t.Helper()
	l.cmd = exec.Command(l.binary, "-endpoint", filepath.Join(filepath.Dir(l.binary), "csi.sock"), "-data", l.data, "-registry", filepath.Join(l.root, "plugins_registry"))
	require.NoError(l.t, l.cmd.Start())
	require.Eventually(l.t, func() bool { return slices.Contains(l.plugin.Drivers(), loopName) }, timeout, time.Millisecond)
}

// kill kills the driver. Its sockets remain.
func (l *loop) kill() {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
		l.cmd = nil
	}
}

// restart kills the driver and waits until its successor is registered.
func (l *loop) restart() {
	l.t.Helper()
	l.kill()
	require.NoError(l.t, os.Remove(filepath.Join(l.root, "plugins_registry", loopName+"-reg.sock")))
	require.Eventually(l.t, func() bool { return len(l.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
	l.start()
}

// attachedDevices returns the loop devices that the driver has attached for volumes.
func (l *loop) attachedDevices() (devices []string) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(l.t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), l.data) {
			devices = append(devices, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return devices
}

// newClaimedVolume returns a volume with a claim of 16 MiB.
func (l *loop) newClaimedVolume(uid string, block bool) volume.Volume {
	l.t.Helper()
	image := filepath.Join(l.data, "volumes", "disk1.img")
	if _, err := os.Stat(image); err != nil {
		require.NoError(l.t, os.WriteFile(image, nil, 0o600))
		require.NoError(l.t, os.Truncate(image, 16<<20))
	}
	v := l.newPersistentVolume(block)
	v.PV.Spec.CSI.Driver, v.PV.Spec.CSI.VolumeHandle, v.PV.Spec.CSI.VolumeAttributes = loopName, "disk1", nil
	v.UID, v.PodDir = uid, filepath.Join(l.root, "pods", uid)
	v.Dir = filepath.Join(v.PodDir, "volumes/kubernetes.io~csi/pv1")
	return l.withDevice(v)
}

func fileSystemSize(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &st))
	return int64(st.Blocks) * st.Bsize
}

// Two pods share the file system, and the driver is killed between the calls. The file system is expanded while in use, and keeps
// its files for the next pod.
func TestLoopFilesystemSurvivesDriverRestarts(t *testing.T) {
	l := newLoop(t)
	one, two := l.newClaimedVolume("one", false), l.newClaimedVolume("two", false)
	require.NoError(t, l.plugin.Stage(t.Context(), one))
	l.restart()
	again := one
	again.Recovered = true
	require.NoError(t, l.plugin.Stage(t.Context(), again))
	m, err := l.plugin.SetUp(t.Context(), one)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(m.HostPath, "file"), []byte("data"), 0o600))
	info, err := os.Stat(m.HostPath)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSetgid|0o775, info.Mode())
	l.restart()
	two.ReadOnly = true
	second, err := l.plugin.SetUp(t.Context(), two)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(second.HostPath, "file"))
	require.ErrorIs(t, os.WriteFile(filepath.Join(second.HostPath, "no"), nil, 0o600), unix.EROFS)

	before := fileSystemSize(t, m.HostPath)
	err = l.plugin.NodeExpand(t.Context(), one, volume.Expansion{OldSize: 16 << 20, NewSize: 32 << 20})
	if canResize(t) {
		require.NoError(t, err)
		require.Greater(t, fileSystemSize(t, second.HostPath), before+10<<20)
	} else { // without CAP_SYS_RESOURCE the driver is called and returns the reason
		require.ErrorContains(t, err, "Permission denied to resize filesystem")
	}
	u, err := l.plugin.Usage(t.Context(), asRecorded(one))
	require.NoError(t, err)
	require.EqualValues(t, fileSystemSize(t, m.HostPath), u.CapacityBytes)
	require.Less(t, u.AvailableBytes, u.CapacityBytes)
	require.Len(t, l.attachedDevices(), 1)

	require.NoError(t, l.plugin.TearDown(t.Context(), asRecorded(one)))
	l.restart()
	require.NoError(t, l.plugin.TearDown(t.Context(), asRecorded(two)))
	require.NoError(t, l.plugin.Unstage(t.Context(), asRecorded(one)))
	require.NoDirExists(t, one.StagingDir)
	require.Eventually(t, func() bool { return len(l.attachedDevices()) == 0 }, timeout, 10*time.Millisecond)

	three := l.newClaimedVolume("three", false)
	require.NoError(t, l.plugin.Stage(t.Context(), three))
	m, err = l.plugin.SetUp(t.Context(), three)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(m.HostPath, "file"))
	require.NoError(t, err)
	require.Equal(t, "data", string(text))
	// TearDown fails after the driver was killed, and keeps the mount. It succeeds after the restart.
	l.kill()
	require.Error(t, l.plugin.TearDown(t.Context(), asRecorded(three)))
	require.FileExists(t, filepath.Join(m.HostPath, "file"))
	l.restartAfterKill()
	require.NoError(t, l.plugin.TearDown(t.Context(), asRecorded(three)))
	require.NoError(t, l.plugin.Unstage(t.Context(), asRecorded(three)))
	require.Eventually(t, func() bool { return len(l.attachedDevices()) == 0 }, timeout, 10*time.Millisecond)
}

// restartAfterKill starts a driver although sockets of a killed driver remain.
func (l *loop) restartAfterKill() {
	l.t.Helper()
	l.start()
	require.Eventually(l.t, func() bool {
		_, err := l.plugin.Usage(l.t.Context(), asRecorded(l.newClaimedVolume("three", false)))
		return err == nil
	}, timeout, 10*time.Millisecond)
}

// canResize reports whether a mounted file system can be expanded, which needs CAP_SYS_RESOURCE.
func canResize(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &data[0]))
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestLoopBlockVolume(t *testing.T) {
	l := newLoop(t)
	v := l.newClaimedVolume("one", true)
	require.NoError(t, l.plugin.Stage(t.Context(), v))
	l.restart()
	m, err := l.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(m.HostPath, &st))
	require.EqualValues(t, unix.S_IFBLK, st.Mode&unix.S_IFMT)
	require.EqualValues(t, 7, unix.Major(st.Rdev))
	f, err := os.OpenFile(m.HostPath, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data"), 1<<20)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.NoError(t, l.plugin.NodeExpand(t.Context(), v, volume.Expansion{NewSize: 32 << 20}))
	size, err := os.ReadFile("/sys/block/" + filepath.Base(l.attachedDevices()[0]) + "/size")
	require.NoError(t, err)
	require.Equal(t, "65536", strings.TrimSpace(string(size)))
	require.NoError(t, l.plugin.TearDown(t.Context(), asRecorded(v)))
	require.NoFileExists(t, m.HostPath)
	require.NoError(t, l.plugin.Unstage(t.Context(), asRecorded(v)))
	require.Eventually(t, func() bool { return len(l.attachedDevices()) == 0 }, timeout, 10*time.Millisecond)
	image, err := os.Open(filepath.Join(l.data, "volumes", "disk1.img"))
	require.NoError(t, err)
	defer image.Close()
	text := make([]byte, 4)
	_, err = image.ReadAt(text, 1<<20)
	require.NoError(t, err)
	require.Equal(t, "data", string(text))
}

// An inline volume is not removed while the pod has a file system mounted inside.
func TestLoopInlineVolumeKeptWhileMounted(t *testing.T) {
	l := newLoop(t)
	v := l.newInlineVolume(map[string]string{"size": "8388608"})
	fsType := "ext4"
	v.Source.CSI.Driver, v.Source.CSI.FSType = loopName, &fsType
	m, err := l.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	require.Less(t, fileSystemSize(t, m.HostPath), int64(8<<20))
	require.NoError(t, os.WriteFile(filepath.Join(m.HostPath, "file"), []byte("data"), 0o600))
	l.restart()
	again := v
	again.Recovered = true
	_, err = l.plugin.SetUp(t.Context(), again)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(m.HostPath, "file"))

	// vol_data.json is lost. The driver is known from the pod; otherwise no mounted file system is removed.
	require.NoError(t, os.Remove(filepath.Join(v.Dir, "vol_data.json")))
	require.ErrorContains(t, l.plugin.TearDown(t.Context(), asRecorded(v)), "is unknown: unmount")
	require.FileExists(t, filepath.Join(m.HostPath, "file"))
	require.NoError(t, l.plugin.TearDown(t.Context(), v))
	require.NoDirExists(t, v.Dir)
	require.Eventually(t, func() bool { return len(l.attachedDevices()) == 0 }, timeout, 10*time.Millisecond)
	left, err := os.ReadDir(filepath.Join(l.data, "inline"))
	require.NoError(t, err)
	assert.Empty(t, left)

	bad := l.newInlineVolume(map[string]string{"size": "many"})
	bad.Source = &corev1.Volume{Name: "data", VolumeSource: *bad.Source.VolumeSource.DeepCopy()}
	bad.Source.CSI.Driver = loopName
	_, err = l.plugin.SetUp(t.Context(), bad)
	require.ErrorContains(t, err, `size "many" is no number of bytes`)
	require.True(t, isFinal(err))
}

// A restarted agent uses a file system or device that is still mounted. For a volume that is not mounted, it waits for the
// driver and the API server.
func TestLoopRecovered(t *testing.T) {
	for name, mode := range map[string]corev1.PersistentVolumeMode{"file system": corev1.PersistentVolumeFilesystem, "block": corev1.PersistentVolumeBlock} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t)
			block := mode == corev1.PersistentVolumeBlock
			l.newClaimedVolume("", block) // creates the image file of the volume
			l.bindClaim("data")
			pv, err := l.claims.PersistentVolume(t.Context(), "pv-data")
			require.NoError(t, err)
			pvc, err := l.claims.PersistentVolumeClaim(t.Context(), "default", "data")
			require.NoError(t, err)
			pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle, pv.Spec.VolumeMode, pvc.Spec.VolumeMode = loopName, "disk1", &mode, &mode
			v, stop := l.startEngine(timeout)
			a, b := claimPod("a", "data", block), claimPod("b", "data", block)
			require.NoError(t, v.Prepare(t.Context(), a))
			stop()
			l.kill()
			require.NoError(t, os.Remove(filepath.Join(l.root, "plugins_registry", loopName+"-reg.sock")))
			require.Eventually(t, func() bool { return len(l.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
			l.claims.FailCalls(errors.New("no API server"))

			v, _ = l.startEngine(timeout)
			require.NoError(t, v.Prepare(t.Context(), a))
			require.NoError(t, v.WaitError("uid-a"))
			require.ErrorContains(t, v.Prepare(t.Context(), b), "no API server")
			require.NoError(t, v.Release(t.Context(), "uid-b"))

			l.claims.FailCalls(nil)
			l.start()
			require.NoError(t, v.Prepare(t.Context(), b))
			require.NoError(t, v.Release(t.Context(), "uid-a"))
			require.NoError(t, v.Release(t.Context(), "uid-b"))
			require.Eventually(t, func() bool { return len(l.attachedDevices()) == 0 }, timeout, 10*time.Millisecond)
		})
	}
}
