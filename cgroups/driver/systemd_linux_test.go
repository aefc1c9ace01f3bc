// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd/systemdtest"
)

// recorder is a tree of plain directories. It records its calls and those of systemd in one list, to check their order.
type recorder struct {
	tree
	dir     string
	entries []string
	limit   cgroups.Resources
	killErr error
}

func (d *recorder) note(format string, args ...any) {
	d.entries = append(d.entries, fmt.Sprintf(format, args...))
}

// read returns the calls since the previous call of read.
func (d *recorder) read() []string {
	entries := d.entries
	d.entries = nil
	return entries
}

func (d *recorder) applyLimits(_ context.Context, dir string, r cgroups.Resources) error {
	d.note("files: apply %s quota=%d", filepath.Base(dir), r.CPUQuota)
	return os.MkdirAll(filepath.Join(d.dir, dir), 0o755)
}

func (d *recorder) killAll(_ context.Context, dir string) error {
	d.note("files: kill %s", filepath.Base(dir))
	return d.killErr
}

func (d *recorder) removeCgroup(_ context.Context, dir string) error {
	d.note("files: remove %s", filepath.Base(dir))
	return os.RemoveAll(filepath.Join(d.dir, dir))
}

func (d *recorder) readLimits(dir string) (cgroups.Resources, error) {
	if _, err := os.Stat(filepath.Join(d.dir, dir)); err != nil {
		return cgroups.Resources{}, fs.ErrNotExist
	}
	return d.limit, nil
}

func (d *recorder) close() error { return nil }

// withSystemd returns a creator below a root with a fake systemd, which creates the directories of slices as systemd does.
func withSystemd(t *testing.T, root cgroups.Path) (*systemdCreator, *recorder, *systemdtest.Systemd) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	server, err := systemdtest.Start(socket, false)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	d := &recorder{dir: t.TempDir()}
	n := names{root: root, systemd: true}
	server.SetObserver(func(method, unit string) {
		d.note("systemd: %s %s", method, unit)
		p, err := cgroups.ParseSystemd(unit)
		assert.NoError(t, err)
		below, _ := strings.CutPrefix(string(p), string(root))
		dir, err := n.relativeDir(cgroups.Path(strings.Trim(below, "/")))
		assert.NoError(t, err)
		if method == "StartTransientUnit" {
			assert.NoError(t, os.MkdirAll(filepath.Join(d.dir, dir), 0o755))
		}
	})
	client := systemd.New(systemd.Options{Sockets: []systemd.Socket{{Path: socket}}})
	u := newSystemdCreator(files{names: n, tree: d}, client, Host{Mode: V2, Dirs: map[string]string{"cpu": d.dir}}, Options{})
	t.Cleanup(func() { assert.NoError(t, u.close()) })
	return u, d, server
}

// systemd starts the slices from the top, and the files get the quota as systemd rounds it.
func TestSystemdStartsSliceBeforeFilesAreWritten(t *testing.T) {
	u, d, server := withSystemd(t, "")
	r := cgroups.Resources{CPUQuota: 1100, CPUPeriod: 100_000}
	require.NoError(t, u.createCgroup(t.Context(), "kubepods/burstable/pod1-a", r))
	assert.Equal(t, []string{
		"systemd: StartTransientUnit kubepods.slice",
		"systemd: StartTransientUnit kubepods-burstable.slice",
		"systemd: StartTransientUnit kubepods-burstable-pod1_a.slice",
		"files: apply kubepods-burstable-pod1_a.slice quota=2000",
	}, d.read())
	pod := server.Unit("kubepods-burstable-pod1_a.slice")
	assert.Equal(t, uint64(20_000), pod.Properties["CPUQuotaPerSecUSec"].Value())
	assert.Equal(t, []string{"kubepods-burstable.slice"}, pod.Properties["Wants"].Value())
	assert.Equal(t, []string{"-.slice"}, server.Unit("kubepods.slice").Properties["Wants"].Value())

	require.NoError(t, u.createCgroup(t.Context(), "kubepods/burstable/pod2", cgroups.Resources{}))
	assert.Len(t, d.read(), 2, "existing parents are not started again")
}

// The unit names of a driver with a root start at the mount point.
func TestSystemdUnitNamesIncludeRoot(t *testing.T) {
	u, d, server := withSystemd(t, "agent/test")
	require.NoError(t, u.createCgroup(t.Context(), "pods/pod1", cgroups.Resources{}))
	assert.Equal(t, []string{
		"systemd: StartTransientUnit agent-test-pods.slice",
		"systemd: StartTransientUnit agent-test-pods-pod1.slice",
		"files: apply agent-test-pods-pod1.slice quota=0",
	}, d.read())
	assert.Equal(t, []string{"agent-test.slice"}, server.Unit("agent-test-pods.slice").Properties["Wants"].Value())
	assert.DirExists(t, filepath.Join(d.dir, "agent-test-pods.slice", "agent-test-pods-pod1.slice"))

	require.NoError(t, u.createCgroup(t.Context(), "", cgroups.Resources{CPUShares: 2}))
	assert.Equal(t, uint64(1), server.Unit("agent-test.slice").Properties["CPUWeight"].Value())
	u, _, server = withSystemd(t, "")
	require.NoError(t, u.createCgroup(t.Context(), "", cgroups.Resources{CPUShares: 2}))
	assert.Empty(t, server.Calls(), "systemd is not called for the root slice")
}

// If only the period is set, the quota stays, for systemd and the kernel.
func TestSystemdKeepsQuotaForPeriodOnly(t *testing.T) {
	u, d, server := withSystemd(t, "")
	require.NoError(t, u.createCgroup(t.Context(), "a", cgroups.Resources{CPUQuota: 50_000, CPUPeriod: 100_000}))
	d.limit = cgroups.Resources{CPUQuota: 50_000, CPUPeriod: 100_000}
	require.NoError(t, u.createCgroup(t.Context(), "a", cgroups.Resources{CPUPeriod: 200_000}))
	props := server.Unit("a.slice").Properties
	assert.Equal(t, uint64(250_000), props["CPUQuotaPerSecUSec"].Value())
	assert.Equal(t, uint64(200_000), props["CPUQuotaPeriodUSec"].Value())
}

// Processes are killed first, and the directory is removed last.
func TestSystemdRemoveKillsThenStopsThenRemoves(t *testing.T) {
	u, d, server := withSystemd(t, "")
	require.NoError(t, u.createCgroup(t.Context(), "a/b", cgroups.Resources{}))
	d.read()
	require.NoError(t, u.removeCgroup(t.Context(), "a/b"))
	assert.Equal(t, []string{"files: kill a-b.slice", "systemd: StopUnit a-b.slice", "files: remove a-b.slice"}, d.read())
	assert.Empty(t, server.Unit("a-b.slice").State)
	assert.NoDirExists(t, filepath.Join(d.dir, "a.slice", "a-b.slice"))
	require.NoError(t, u.removeCgroup(t.Context(), "a/b"), "removal of an absent cgroup is a success")
}

// The directory stays if the unit could not be stopped: it shows that a unit remains.
func TestSystemdRemoveKeepsDirectoryIfStopFails(t *testing.T) {
	u, d, server := withSystemd(t, "")
	require.NoError(t, u.createCgroup(t.Context(), "a", cgroups.Resources{}))
	server.Inject("StopUnit", systemdtest.Failed)
	require.ErrorContains(t, u.removeCgroup(t.Context(), "a"), "stop unit a.slice: job ended: failed")
	assert.DirExists(t, filepath.Join(d.dir, "a.slice"))

	d.killErr = os.ErrDeadlineExceeded
	require.ErrorIs(t, u.removeCgroup(t.Context(), "a"), os.ErrDeadlineExceeded)
	assert.DirExists(t, filepath.Join(d.dir, "a.slice"))

	d.killErr = nil
	require.NoError(t, u.removeCgroup(t.Context(), "a"))
	assert.Empty(t, server.Unit("a.slice").State)
}

// A systemd that creates its slices in another tree is an error.
func TestSystemdRejectsSlicesInOtherTree(t *testing.T) {
	u, d, server := withSystemd(t, "")
	server.SetObserver(nil)
	err := u.createCgroup(t.Context(), "a", cgroups.Resources{})
	require.ErrorContains(t, err, "the driver and systemd use different cgroup trees")
	assert.Empty(t, d.read(), "no file is written")
}
