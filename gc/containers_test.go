// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/gc"
)

// leftoverNode is a runtime in memory, and the directories of a node.
type leftoverNode struct {
	t                 *testing.T
	rt                *critest.Runtime
	faults            *critest.Faults
	pods              map[string]gc.PodState
	logs, links, dirs string
	removed           []string
	opts              gc.ContainerOptions
}

func newLeftoverNode(t *testing.T) *leftoverNode {
	dir := t.TempDir()
	l := &leftoverNode{
		t: t, rt: critest.New(critest.Options{}), pods: map[string]gc.PodState{},
		logs: filepath.Join(dir, "logs"), links: filepath.Join(dir, "links"), dirs: filepath.Join(dir, "pods"),
	}
	for _, d := range []string{l.logs, l.links, l.dirs} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	l.faults = &critest.Faults{Runtime: l.rt}
	l.opts = gc.ContainerOptions{
		Pod: func(uid string) gc.PodState { return l.pods[uid] }, LogRoot: l.logs, LogLinks: l.links, PodRoot: l.dirs, MinDirAge: -1,
		Hooks: gc.ContainerHooks{
			Removed:    func(r gc.Removal) { l.removed = append(l.removed, r.ID) },
			DirRemoved: func(path string) { l.removed = append(l.removed, filepath.Base(path)) },
		},
	}
	return l
}

// newCollector returns a collector with the options l.opts on the runtime, whose calls fail according to l.faults.
func (l *leftoverNode) newCollector() *gc.Containers {
	via := struct {
		*critest.Faults
		cri.Inspector
	}{l.faults, critest.SummaryRuntime{Runtime: l.rt}}
	g, err := gc.NewContainers(via, l.opts)
	require.NoError(l.t, err)
	return g
}

// addExitedPod creates a pod with the named containers, which have exited and have a log each. It returns the ID of the sandbox.
func (l *leftoverNode) addExitedPod(uid string, containers ...string) (sandbox string) {
	ctx := l.t.Context()
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: uid, Name: "n" + uid, Namespace: "ns"}, LogDirectory: filepath.Join(l.logs, "ns_n"+uid+"_"+uid)}
	sandbox, err := l.rt.RunSandbox(ctx, config)
	require.NoError(l.t, err)
	for i, name := range containers {
		attempt := uint32(slices.Index(containers[i:], name)) + uint32(countOf(containers[:i], name))
		log := filepath.Join(name, fmt.Sprint(attempt, ".log"))
		path := filepath.Join(config.LogDirectory, log)
		require.NoError(l.t, os.MkdirAll(filepath.Dir(path), 0o755))
		for _, suffix := range []string{"", ".20260101-000000", ".20260101-000001.gz"} {
			require.NoError(l.t, os.WriteFile(path+suffix, nil, 0o644))
		}
		id, err := l.rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: name, Attempt: attempt, LogPath: log}, config)
		require.NoError(l.t, err)
		require.NoError(l.t, l.rt.StartContainer(ctx, id))
		require.NoError(l.t, l.rt.StopContainer(ctx, id, 0))
		require.NoError(l.t, os.Symlink(path, filepath.Join(l.links, "n"+uid+"_ns_"+name+"-"+id+".log")))
		time.Sleep(time.Second)
	}
	return sandbox
}

func countOf(list []string, name string) (n int) {
	for _, s := range list {
		if s == name {
			n++
		}
	}
	return n
}

func (l *leftoverNode) listDir(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(l.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (l *leftoverNode) listIDs() (ids []string) {
	snap, err := l.rt.List(l.t.Context())
	require.NoError(l.t, err)
	for _, s := range snap.Sandboxes {
		ids = append(ids, s.ID)
	}
	for _, c := range snap.Containers {
		ids = append(ids, c.ID)
	}
	return ids
}

// All objects of a removed pod are removed in one pass: containers, logs, sandbox, links and directories. An owned pod keeps
// all of them; an active pod loses its older container instances.
func TestCollectRemovesObjectsOfRemovedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		for _, uid := range []string{"gone", "owned", "active"} {
			sandbox := l.addExitedPod(uid, "main", "main")
			if uid != "active" {
				require.NoError(t, l.rt.StopSandbox(t.Context(), sandbox))
			}
			require.NoError(t, os.MkdirAll(filepath.Join(l.dirs, uid, "etc"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(l.dirs, uid, "etc", "hosts"), nil, 0o600))
		}
		l.pods["gone"], l.pods["owned"] = gc.PodRemoved, gc.PodOwned
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Equal(t, []string{"owned-0", "active-0", "owned-main-0", "owned-main-1", "active-main-1"}, l.listIDs())
		require.Equal(t, []string{"ns_nactive_active", "ns_nowned_owned"}, l.listDir(l.logs))
		require.Equal(t, []string{"1.log", "1.log.20260101-000000", "1.log.20260101-000001.gz"}, l.listDir(filepath.Join(l.logs, "ns_nactive_active", "main")))
		require.Len(t, l.listDir(filepath.Join(l.logs, "ns_nowned_owned", "main")), 6)
		require.Equal(t, []string{"active", "owned"}, l.listDir(l.dirs))
		require.Equal(t, []string{"nactive_ns_main-active-main-1.log", "nowned_ns_main-owned-main-0.log", "nowned_ns_main-owned-main-1.log"}, l.listDir(l.links))
		l.removed = nil
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Empty(t, l.removed, "a second pass removes nothing")
	})
}

// Before each removal the collector reads the state of the pod again: the remaining objects of a pod that is added back
// during the pass are kept.
func TestCollectKeepsContainersOfReturnedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		require.NoError(t, l.rt.StopSandbox(t.Context(), l.addExitedPod("a", "one", "two")))
		l.pods["a"] = gc.PodRemoved
		l.opts.Hooks.Removed = func(r gc.Removal) {
			l.removed = append(l.removed, r.ID)
			l.pods["a"] = gc.PodOwned
		}
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Equal(t, []string{"a-one-0", "na_ns_one-a-one-0.log"}, l.removed, "the first container and its dangling log link are removed")
		require.Equal(t, []string{"a-0", "a-two-0"}, l.listIDs())
	})
}

// A container that was started after the list is not removed.
func TestCollectKeepsContainerStartedAfterList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a", Name: "a", Namespace: "ns"}}
		sandbox, err := l.rt.RunSandbox(t.Context(), config)
		require.NoError(t, err)
		id, err := l.rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c"}, config)
		require.NoError(t, err)
		l.pods["a"] = gc.PodRemoved
		l.faults.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			_ = next.StartContainer(ctx, id) // right after the list
			return snap, err
		}
		require.NoError(t, l.newCollector().Collect(t.Context()))
		c, ok := l.rt.Container(id)
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
	})
}

// An error names the container and its pod, and other removals continue. If the runtime cannot be listed, nothing is
// removed.
func TestFailedRemovalNamesContainerAndPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		l.addExitedPod("a", "bad", "good")
		l.pods["a"] = gc.PodRemoved
		l.faults.RemoveContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
			if id == "a-bad-0" {
				return errors.New("busy")
			}
			return next.RemoveContainer(ctx, id)
		}
		require.EqualError(t, l.newCollector().Collect(t.Context()), "remove container a-bad-0 (bad) of pod a: busy")
		require.Equal(t, []string{"a-0", "a-bad-0"}, l.listIDs())

		l.faults.RemoveContainerFunc = nil
		l.faults.ListFunc = func(context.Context, cri.Runtime) (cri.Snapshot, error) { return cri.Snapshot{}, errors.New("away") }
		err := l.newCollector().Collect(t.Context())
		for _, what := range []string{"containers", "sandboxes", "directories"} {
			require.ErrorContains(t, err, "find "+what+" to remove: away")
		}
		require.Equal(t, []string{"a-0", "a-bad-0"}, l.listIDs())
	})
}

// A container in state unknown is stopped before its removal. It stays if the stop fails.
func TestUnknownContainerIsStoppedBeforeRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		l.addExitedPod("a", "c")
		l.pods["a"] = gc.PodRemoved
		unknown := func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			for i := range snap.Containers {
				snap.Containers[i].State = cri.ContainerUnknown
				snap.Containers[i].Annotations = map[string]string{"io.kubernetes.pod.terminationGracePeriod": "7"}
			}
			return snap, err
		}
		l.faults.ListFunc = unknown
		var grace time.Duration
		var stop error
		l.faults.StopContainerFunc = func(_ context.Context, _ cri.Runtime, _ string, d time.Duration) error { grace = d; return stop }
		stop = errors.New("shim is away")
		g, err := gc.NewContainers(l.faults, l.opts) // a runtime whose lists are complete
		require.NoError(t, err)
		require.ErrorContains(t, g.Collect(t.Context()), "remove container a-c-0 (c) of pod a: shim is away")
		require.Equal(t, 7*time.Second, grace)
		require.Contains(t, l.listIDs(), "a-c-0")
		stop = nil
		require.NoError(t, g.Collect(t.Context()))
		require.NotContains(t, l.listIDs(), "a-c-0")
	})
}

// Logs are removed only below LogRoot, and symbolic links are not followed. A container whose log cannot be removed stays.
func TestLogsOutsideLogRootAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		outside := filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.MkdirAll(outside, 0o755))
		kept := filepath.Join(outside, "0.log")
		require.NoError(t, os.WriteFile(kept, nil, 0o600))
		l.addExitedPod("a", "c")
		l.addExitedPod("b", "c")
		l.pods["a"], l.pods["b"] = gc.PodRemoved, gc.PodRemoved
		dir := filepath.Join(l.logs, "ns_na_a", "c")
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Symlink(outside, dir)) // as created by a container that mounts the log directory of the node
		l.faults.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			for i := range snap.Containers {
				if snap.Containers[i].PodUID == "b" {
					snap.Containers[i].LogPath = kept
				}
			}
			return snap, err
		}
		g, err := gc.NewContainers(l.faults, l.opts)
		require.NoError(t, err)
		require.ErrorContains(t, g.Collect(t.Context()), "remove container a-c-0 (c) of pod a: ")
		require.FileExists(t, kept)
		require.NotContains(t, l.listIDs(), "b-c-0")
		require.Contains(t, l.listIDs(), "a-c-0", "a container whose log cannot be removed stays")
	})
}

// Log directories with the kubelet's current and older names are removed, if their pod is removed and has no object in the
// runtime. Before Ready, all of them stay. Directories younger than MinDirAge, files, and directories with foreign names
// stay.
func TestLogDirectoriesOfRemovedPodsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		static, served, running := strings.Repeat("0", 32), "01234567-89ab-cdef-0123-456789abcdef", strings.Repeat("1", 32)
		all := []string{static, served, running, "journal", "name_namespace_321", "name_namespace_654", "of_somebody_else_654"}
		for _, name := range all {
			require.NoError(t, os.MkdirAll(filepath.Join(l.logs, name, "c"), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(l.logs, "x_y_654"), nil, 0o600))
		for _, uid := range []string{static, served, "654", "journal"} {
			l.pods[uid] = gc.PodRemoved
		}
		all = append(all, "x_y_654")
		ready := false
		l.opts.Ready = func() bool { return ready }
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Equal(t, all, l.listDir(l.logs))
		ready = true
		l.opts.MinDirAge = 0 // the default
		for _, name := range all {
			now := time.Now() // virtual time
			require.NoError(t, os.Chtimes(filepath.Join(l.logs, name), now, now))
		}
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Equal(t, all, l.listDir(l.logs), "directories younger than MinDirAge stay")
		time.Sleep(10 * time.Minute)
		require.NoError(t, l.newCollector().Collect(t.Context()))
		require.Equal(t, []string{running, "journal", "name_namespace_321", "of_somebody_else_654", "x_y_654"}, l.listDir(l.logs))

		foreign := l.listDir(l.logs)
		require.NoError(t, os.Mkdir(filepath.Join(l.logs, "x_y_987"), 0o755))
		l.pods["987"], l.opts.MinDirAge, l.opts.KeepLogs = gc.PodRemoved, -1, true
		l.addExitedPod("c", "exited")
		require.NoError(t, os.Symlink(filepath.Join(l.logs, "none", "0.log"), filepath.Join(l.links, "p_ns_c-0123456789.log")))
		require.NoError(t, l.newCollector().CollectTerminated(t.Context()))
		require.Subset(t, l.listDir(l.logs), append(foreign, "x_y_987", "ns_nc_c"))
		require.NotContains(t, l.listDir(l.links), "p_ns_c-0123456789.log", "KeepLogs does not keep dangling links")

		l.opts.LogRoot = filepath.Join(l.logs, "none")
		require.NoError(t, l.newCollector().Collect(t.Context()), "a missing log directory counts as empty")
	})
}

// A dangling log link is removed, unless its container may be rotating the log. Other files and links stay.
func TestDanglingLogLinksAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		l.addExitedPod("a", "exited")
		config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "b", Name: "b", Namespace: "ns"}}
		sandbox, err := l.rt.RunSandbox(t.Context(), config)
		require.NoError(t, err)
		running, err := l.rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "running"}, config)
		require.NoError(t, err)
		require.NoError(t, l.rt.StartContainer(t.Context(), running))
		for _, name := range l.listDir(l.links) {
			require.NoError(t, os.Remove(filepath.Join(l.links, name)))
		}
		link := func(name, target string) { require.NoError(t, os.Symlink(target, filepath.Join(l.links, name))) }
		missing := filepath.Join(l.logs, "missing", "0.log")
		link("p_ns_c-abc.log", missing)                    // ID is too short
		link("p_ns_noid.log", missing)                     // no ID
		link("p_ns_c-unknown-container.log", missing)      // not in the runtime
		link("p_ns_exited-aexited0.log", missing)          // likewise: the IDs of critest have dashes
		link("p_ns_running-"+running+".log", missing)      // its ID is truncated at the dash, too
		link("p_ns_c-elsewhere.log", "/nonexistent/0.log") // target not below LogRoot
		link("p_ns_c-relative.log", "missing/0.log")       // likewise
		link("p_ns_c-escapes.log", l.logs+"/../other.log") // likewise
		link("readme.txt", missing)                        // not named like a log link
		link("p_ns_c-present.log", filepath.Join(l.logs, "ns_na_a", "exited", "0.log"))
		require.NoError(t, os.WriteFile(filepath.Join(l.links, "p_ns_c-afile.log"), nil, 0o600))
		rotating := &cri.ContainerConfig{Name: "rotating"}
		id, err := l.rt.CreateContainer(t.Context(), sandbox, rotating, config)
		require.NoError(t, err)
		require.NoError(t, l.rt.StartContainer(t.Context(), id))
		l.faults.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			for i := range snap.Containers {
				if snap.Containers[i].ID == id {
					snap.Containers[i].ID = "rotatingcontainer0123456789"
				}
			}
			return snap, err
		}
		link("p_ns_rotating-rotatingcontainer012.log", missing) // the link name contains a truncated ID
		g, err := gc.NewContainers(l.faults, l.opts)
		require.NoError(t, err)
		require.NoError(t, g.Collect(t.Context()))
		require.Equal(t, []string{
			"p_ns_c-afile.log", "p_ns_c-elsewhere.log", "p_ns_c-escapes.log", "p_ns_c-present.log", "p_ns_c-relative.log",
			"p_ns_rotating-rotatingcontainer012.log", "readme.txt",
		}, l.listDir(l.links))
	})
}

// The directory of a removed pod is removed after Release has succeeded, if its volumes are empty. Data in a volume stays.
func TestPodDirectoryIsRemovedAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftoverNode(t)
		for _, path := range []string{
			"empty/volumes/kubernetes.io~empty-dir/data", "empty/volume-subpaths/data/main/0", "empty/containers/main",
			"data/volumes/kubernetes.io~nfs/share/dir", "fails/containers", ".hidden", "running/containers",
		} {
			require.NoError(t, os.MkdirAll(filepath.Join(l.dirs, path), 0o755))
		}
		for _, uid := range []string{"empty", "data", "fails", ".hidden", "running"} {
			l.pods[uid] = gc.PodRemoved
		}
		l.addExitedPod("running", "c")
		var released []string
		l.opts.Release = func(_ context.Context, uid string) error {
			released = append(released, uid)
			if uid == "fails" {
				return errors.New("the server does not answer")
			}
			return nil
		}
		l.faults.RemoveContainerFunc = func(context.Context, cri.Runtime, string) error { return errors.New("busy") }
		err := l.newCollector().Collect(t.Context())
		require.ErrorContains(t, err, "remove "+filepath.Join(l.dirs, "data")+": data/volumes/kubernetes.io~nfs/share: the volume is not empty")
		require.ErrorContains(t, err, "remove "+filepath.Join(l.dirs, "fails")+": release the resources of the pod: the server does not answer")
		require.Equal(t, []string{".hidden", "data", "fails", "running"}, l.listDir(l.dirs))
		require.DirExists(t, filepath.Join(l.dirs, "data/volumes/kubernetes.io~nfs/share/dir"))
		require.Equal(t, []string{"data", "empty", "fails"}, slices.Sorted(slices.Values(released)))
	})
}

func TestOwnedBy(t *testing.T) {
	pod := gc.OwnedBy(func(uid string) bool { return uid == "mine" })
	for uid, want := range map[string]gc.PodState{"mine": gc.PodOwned, "": gc.PodOwned, "other": gc.PodRemoved} {
		require.Equal(t, want, pod(uid), uid)
	}
	require.Equal(t, "removed", gc.PodRemoved.String())
	require.Equal(t, "9", gc.PodState(9).String())
}
