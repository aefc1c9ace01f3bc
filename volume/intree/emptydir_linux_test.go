// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/internal/projquota"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

func stat(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	require.NoError(t, unix.Lstat(path, &st))
	return st
}

func statFileSystem(t *testing.T, path string) (kind, bytes int64) {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &st))
	return st.Type, int64(st.Blocks) * st.Bsize
}

func TestEmptyDirOnDiskIsSetUpOnce(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	n := newNode(t)
	v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v}]"))
	m := n.setUp(v)
	assert.Equal(t, volume.Mount{HostPath: v.Dir, SELinuxRelabel: true}, m)
	assert.EqualValues(t, unix.S_IFDIR|0o777, stat(t, v.Dir).Mode, "the mode does not depend on the umask")
	require.FileExists(t, filepath.Join(v.PodDir, "plugins/kubernetes.io~empty-dir/v/ready"))

	require.NoError(t, os.Remove(v.Dir))
	n.setUp(v)
	require.DirExists(t, v.Dir, "a removed directory is created again")
	n.tearDown(v)
	require.NoDirExists(t, filepath.Join(v.PodDir, "plugins"))
}

func TestEmptyDirModeIgnoresUmask(t *testing.T) {
	mounttest.Need(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	n := newNode(t)
	for mode, want := range map[string]uint32{"0": 0, "448": 0o700, "493": 0o755, "1023": 0o1777} {
		for _, medium := range []string{"", "medium: Memory, "} {
			v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "{volumes: [{name: v, emptyDir: {"+medium+"mode: "+mode+"}}]}"))
			n.setUp(v)
			assert.Equal(t, unix.S_IFDIR|want, stat(t, v.Dir).Mode, medium+mode)
			n.tearDown(v)
		}
	}
}

func TestEmptyDirHasFSGroup(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	for _, medium := range []string{"{}", "{medium: Memory}"} {
		v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "{securityContext: {fsGroup: 1234}, volumes: [{name: v, emptyDir: "+medium+"}]}"))
		n.setUp(v)
		st := stat(t, v.Dir)
		assert.EqualValues(t, 1234, st.Gid)
		assert.EqualValues(t, unix.S_ISGID|0o777, st.Mode&(unix.S_ISGID|0o777), medium)
		n.tearDown(v)
	}
}

func TestTmpfsSizeIsLowestLimit(t *testing.T) {
	mounttest.Need(t)
	const limited = "containers: [{name: c, image: i, resources: {limits: {memory: 1Mi}}}]"
	for name, c := range map[string]struct {
		node, spec string
		want       int64
	}{
		"volume":                  {"8Mi", "volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 2Mi}}]", 2 << 20},
		"pod":                     {"8Mi", "{volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 2Mi}}], " + limited + "}", 1 << 20},
		"node":                    {"512Ki", "{volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 2Mi}}], " + limited + "}", 512 << 10},
		"container without limit": {"8Mi", "{volumes: [{name: v, emptyDir: {medium: Memory}}], initContainers: [{name: i, image: i}], " + limited + "}", 8 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.options.Allocatable = func() corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.node)}
			}
			n.plugins = intree.Plugins(n.options)
			v := n.newVolume(volume.EmptyDir, podtest.Pod(t, c.spec))
			n.setUp(v)
			kind, bytes := statFileSystem(t, v.Dir)
			assert.EqualValues(t, unix.TMPFS_MAGIC, kind)
			assert.Equal(t, c.want, bytes)
			n.tearDown(v)
		})
	}
}

// The ready file remains after a reboot, the tmpfs does not.
func TestTmpfsMountedAgainAfterReboot(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v, emptyDir: {medium: Memory}}]"))
	n.setUp(v)
	require.NoError(t, unix.Unmount(v.Dir, 0))
	n.setUp(v)
	kind, _ := statFileSystem(t, v.Dir)
	assert.EqualValues(t, unix.TMPFS_MAGIC, kind)
	n.tearDown(v)
}

func TestHugePagesAreMounted(t *testing.T) {
	mounttest.Need(t)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("the kernel has no huge pages of 2 MiB")
	}
	n := newNode(t)
	v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "{volumes: [{name: v, emptyDir: {medium: HugePages}}], containers: [{name: c, image: i, resources: {requests: {hugepages-2Mi: 4Mi}}}]}"))
	n.setUp(v)
	kind, _ := statFileSystem(t, v.Dir)
	assert.EqualValues(t, unix.HUGETLBFS_MAGIC, kind)
	n.setUp(v)
	n.tearDown(v)
}

// As in the kubelet, the pod is admitted, and its set-up fails and is retried.
func TestInvalidMediumFailsSetUpNotCheck(t *testing.T) {
	for name, c := range map[string]struct{ plugin, source, want string }{
		"medium":     {volume.EmptyDir, "emptyDir: {medium: Floppy}", `unknown storage medium "Floppy"`},
		"huge pages": {volume.EmptyDir, "emptyDir: {medium: HugePages-2Mi}", "medium HugePages-2Mi: hugePages storage requested, but there is no resource request for huge pages"},
		"git": {
			volume.GitRepo, "gitRepo: {repository: a}",
			"git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := podtest.Pod(t, "{volumes: [{name: v, "+c.source+"}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}")
			all, err := volume.New(volume.Options{Root: t.TempDir(), Plugins: n.plugins})
			require.NoError(t, err)
			require.Empty(t, all.Check(p))
			v := n.newVolume(c.plugin, p)
			_, err = n.plugins[c.plugin].SetUp(t.Context(), v)
			require.EqualError(t, err, c.want)
			require.NoDirExists(t, v.Dir)
			n.tearDown(v)
		})
	}
}

// A container has mounted a file system in the volume.
func TestTearDownUnmountsNestedMountAndKeepsItsFiles(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "kept"), nil, 0o600))
	for _, known := range []bool{true, false} {
		v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v}]"))
		n.setUp(v)
		inside := filepath.Join(v.Dir, "a/b")
		require.NoError(t, os.MkdirAll(inside, 0o755))
		require.NoError(t, unix.Mount(data, inside, "", unix.MS_BIND, ""))
		if !known {
			v.Pod, v.Source = nil, nil
		}
		n.tearDown(v)
		require.FileExists(t, filepath.Join(data, "kept"))
	}
}

// The server of a file system in the volume has exited.
func TestTearDownUnmountsHungFileSystem(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v}]",
		"{securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}"))
	n.setUp(v)
	dead := filepath.Join(v.Dir, "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	mounttest.DeadFUSE(t, dead)
	n.tearDown(v)
}

func TestUsageByWalkAndStatfs(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	for _, medium := range []string{"{}", "{medium: Memory, sizeLimit: 8Mi}"} {
		v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v, emptyDir: "+medium+"}]"))
		n.setUp(v)
		usager := n.plugins[volume.EmptyDir].(volume.UsageProvider)
		before, err := usager.Usage(t.Context(), v)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(v.Dir, "a/b"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(v.Dir, "a/b/file"), make([]byte, 1<<20), 0o600))
		require.NoError(t, os.Link(filepath.Join(v.Dir, "a/b/file"), filepath.Join(v.Dir, "again")))
		require.NoError(t, os.Symlink("/", filepath.Join(v.Dir, "link")))
		after, err := usager.Usage(t.Context(), v)
		require.NoError(t, err)
		used := after.UsedBytes - before.UsedBytes
		assert.GreaterOrEqual(t, used, uint64(1<<20), medium)
		assert.Less(t, used, uint64(3<<19), "a file with two links counts once: %s", medium)
		assert.Contains(t, []uint64{4, 5}, after.UsedInodes-before.UsedInodes, "a tmpfs counts links as inodes: %s", medium)
		assert.NotZero(t, after.CapacityBytes)

		other := filepath.Join(v.Dir, "mounted")
		require.NoError(t, os.Mkdir(other, 0o755))
		require.NoError(t, unix.Mount("tmpfs", other, "tmpfs", 0, "size=1m"))
		require.NoError(t, os.WriteFile(filepath.Join(other, "file"), make([]byte, 1<<19), 0o600))
		again, err := usager.Usage(t.Context(), v)
		require.NoError(t, err)
		assert.Less(t, again.UsedBytes-after.UsedBytes, uint64(1<<19), "files of another mount do not count: %s", medium)
		same := filepath.Join(v.Dir, "same")
		require.NoError(t, os.Mkdir(same, 0o755))
		require.NoError(t, unix.Mount(filepath.Join(v.Dir, "a"), same, "", unix.MS_BIND, ""))
		bound, err := usager.Usage(t.Context(), v)
		require.NoError(t, err)
		assert.Less(t, bound.UsedBytes-again.UsedBytes, uint64(1<<19), "files of a bind mount do not count again: %s", medium)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = usager.Usage(ctx, v)
		require.ErrorIs(t, err, context.Canceled)
		v.Pod = nil
		n.tearDown(v)
	}
}

// The server of a file system in the volume has exited.
func TestUsageSkipsHungFileSystem(t *testing.T) {
	n := newNode(t)
	v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "volumes: [{name: v}]"))
	n.setUp(v)
	dead := filepath.Join(v.Dir, "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	abort := mounttest.DeadFUSE(t, dead)
	require.NoError(t, os.WriteFile(filepath.Join(v.Dir, "file"), make([]byte, 1<<20), 0o600))
	u, err := n.plugins[volume.EmptyDir].(volume.UsageProvider).Usage(t.Context(), v)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, u.UsedBytes, uint64(1<<20))
	abort()
	v.Pod = nil
	n.tearDown(v)
}

// A pod in the host's user namespace could move its files out of the project. So it has no quota, and its volume is measured by a
// walk.
func TestIntegrationNoQuotaInTheHostsUserNamespace(t *testing.T) {
	root, has := mounttest.QuotaFS(t)
	if !has {
		t.Skip("needs a file system with project quotas")
	}
	n := newNode(t)
	n.root = root
	for _, users := range []string{"", "hostUsers: true, "} {
		v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "{"+users+"volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]}"))
		m := n.setUp(v)
		require.NoError(t, mounttest.WriteLimited(t, filepath.Join(m.HostPath, "large"), 2<<20), users)
		require.Zero(t, projquota.ProjectOf(v.Dir))
		n.tearDown(v)
	}
}

// The sizeLimit is a hard limit on a file system with project quotas, which also measure the volume.
func TestIntegrationQuotaOfEmptyDir(t *testing.T) {
	root, has := mounttest.QuotaFS(t)
	n := newNode(t)
	n.root = root
	for _, known := range []bool{true, false} {
		v := n.newVolume(volume.EmptyDir, podtest.Pod(t, "{hostUsers: false, securityContext: {fsGroup: 1234}, volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]}"))
		m := n.setUp(v)
		require.NoError(t, mounttest.WriteLimited(t, filepath.Join(m.HostPath, "small"), 512<<10))
		u, err := n.plugins[volume.EmptyDir].(volume.UsageProvider).Usage(t.Context(), v)
		require.NoError(t, err)
		assert.InDelta(t, 512<<10, u.UsedBytes, 64<<10)
		err = mounttest.WriteLimited(t, filepath.Join(m.HostPath, "large"), 1<<20)
		if has {
			require.ErrorIs(t, err, unix.EDQUOT)
			assert.EqualValues(t, 1<<20, u.CapacityBytes)
			assert.InDelta(t, 512<<10, u.AvailableBytes, 64<<10)
			again, err := n.plugins[volume.EmptyDir].(volume.UsageProvider).Usage(t.Context(), v)
			require.NoError(t, err)
			assert.LessOrEqual(t, again.AvailableBytes, uint64(4096))
		} else {
			require.NoError(t, err)
			assert.Greater(t, u.CapacityBytes, uint64(1<<20))
			require.Empty(t, os.Getenv("IN_TEST_VM"), "the kernels of hack/vm have quotas")
		}
		n.setUp(v)
		project := projquota.ProjectOf(v.Dir)
		assert.Equal(t, has, project != 0)
		if !known {
			v.Pod, v.Source = nil, nil // as in a restarted agent
		}
		n.tearDown(v)
		if !has {
			continue
		}
		again := filepath.Join(root, "again")
		require.NoError(t, os.Mkdir(again, 0o755))
		p := projquota.Projects{Rand: func() uint32 { return project }}
		require.NoError(t, p.Limit(again, 1<<20))
		assert.Equal(t, project, projquota.ProjectOf(again), "the project ID is free again")
		require.NoError(t, os.Remove(again))
		require.NoError(t, projquota.Release(root, project))
	}
}
