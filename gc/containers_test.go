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

// leftovers is a runtime in memory, and the directories of a node.
type leftovers struct {
	t                 *testing.T
	rt                *critest.Runtime
	faults            *critest.Faults
	pods              map[string]gc.PodState
	logs, links, dirs string
	removed           []string
	o                 gc.ContainerOptions
}

func newLeftovers(t *testing.T) *leftovers {
	dir := t.TempDir()
	l := &leftovers{
		t: t, rt: critest.New(critest.Options{}), pods: map[string]gc.PodState{},
		logs: filepath.Join(dir, "logs"), links: filepath.Join(dir, "links"), dirs: filepath.Join(dir, "pods"),
	}
	for _, d := range []string{l.logs, l.links, l.dirs} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	l.faults = &critest.Faults{Runtime: l.rt}
	l.o = gc.ContainerOptions{
		Pod: func(uid string) gc.PodState { return l.pods[uid] }, LogRoot: l.logs, LogLinks: l.links, PodRoot: l.dirs, MinDirAge: -1,
		Hooks: gc.ContainerHooks{
			Removed:    func(r gc.Removal) { l.removed = append(l.removed, r.ID) },
			DirRemoved: func(path string) { l.removed = append(l.removed, filepath.Base(path)) },
		},
	}
	return l
}

// collector returns a collector with the options l.o on the runtime, whose calls fail as l.faults says.
func (l *leftovers) collector() *gc.Containers {
	via := struct {
		*critest.Faults
		cri.Inspector
	}{l.faults, critest.SummaryRuntime{Runtime: l.rt}}
	g, err := gc.NewContainers(via, l.o)
	require.NoError(l.t, err)
	return g
}

// run creates a pod with these containers, which have exited and have a log each. It returns the ID of the sandbox.
func (l *leftovers) run(uid string, containers ...string) (sandbox string) {
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

func (l *leftovers) names(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(l.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (l *leftovers) ids() (ids []string) {
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

// A pod that was removed leaves nothing: containers, logs, sandbox, links and directories, in one pass. One with an owner loses
// nothing, and one that stays its older instances.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		for _, uid := range []string{"gone", "owned", "active"} {
			sandbox := l.run(uid, "main", "main")
			if uid != "active" {
				require.NoError(t, l.rt.StopSandbox(t.Context(), sandbox))
			}
			require.NoError(t, os.MkdirAll(filepath.Join(l.dirs, uid, "etc"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(l.dirs, uid, "etc", "hosts"), nil, 0o600))
		}
		l.pods["gone"], l.pods["owned"] = gc.PodRemoved, gc.PodOwned
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Equal(t, []string{"owned-0", "active-0", "owned-main-0", "owned-main-1", "active-main-1"}, l.ids())
		require.Equal(t, []string{"ns_nactive_active", "ns_nowned_owned"}, l.names(l.logs))
		require.Equal(t, []string{"1.log", "1.log.20260101-000000", "1.log.20260101-000001.gz"}, l.names(filepath.Join(l.logs, "ns_nactive_active", "main")))
		require.Len(t, l.names(filepath.Join(l.logs, "ns_nowned_owned", "main")), 6)
		require.Equal(t, []string{"active", "owned"}, l.names(l.dirs))
		require.Equal(t, []string{"nactive_ns_main-active-main-1.log", "nowned_ns_main-owned-main-0.log", "nowned_ns_main-owned-main-1.log"}, l.names(l.links))
		l.removed = nil
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Empty(t, l.removed, "nothing is left to do")
	})
}

// Right before each removal the owner of the pod is asked: one that comes back in the middle of a pass keeps what is left.
func TestPodsThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		require.NoError(t, l.rt.StopSandbox(t.Context(), l.run("a", "one", "two")))
		l.pods["a"] = gc.PodRemoved
		l.o.Hooks.Removed = func(r gc.Removal) {
			l.removed = append(l.removed, r.ID)
			l.pods["a"] = gc.PodOwned
		}
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Equal(t, []string{"a-one-0", "na_ns_one-a-one-0.log"}, l.removed, "and what leads nowhere now")
		require.Equal(t, []string{"a-0", "a-two-0"}, l.ids())
	})
}

// What somebody has started since it was listed is not removed.
func TestContainerThatRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a", Name: "a", Namespace: "ns"}}
		sandbox, err := l.rt.RunSandbox(t.Context(), config)
		require.NoError(t, err)
		id, err := l.rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c"}, config)
		require.NoError(t, err)
		l.pods["a"] = gc.PodRemoved
		l.faults.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			_ = next.StartContainer(ctx, id) // just after it was listed
			return snap, err
		}
		require.NoError(t, l.collector().Collect(t.Context()))
		c, ok := l.rt.Container(id)
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
	})
}

// What fails is named, with its pod, and holds up nothing else. A container whose log cannot be removed stays.
func TestRemovalsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		l.run("a", "bad", "good")
		l.pods["a"] = gc.PodRemoved
		l.faults.RemoveContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
			if id == "a-bad-0" {
				return errors.New("busy")
			}
			return next.RemoveContainer(ctx, id)
		}
		require.EqualError(t, l.collector().Collect(t.Context()), "remove container a-bad-0 (bad) of pod a: busy")
		require.Equal(t, []string{"a-0", "a-bad-0"}, l.ids())

		l.faults.RemoveContainerFunc = nil
		l.faults.ListFunc = func(context.Context, cri.Runtime) (cri.Snapshot, error) { return cri.Snapshot{}, errors.New("away") }
		err := l.collector().Collect(t.Context())
		for _, what := range []string{"containers", "sandboxes", "directories"} {
			require.ErrorContains(t, err, what+" that are to go: away")
		}
		require.Equal(t, []string{"a-0", "a-bad-0"}, l.ids())
	})
}

// A container in an unknown state is stopped first, and stays when that fails.
func TestUnknownContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		l.run("a", "c")
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
		g, err := gc.NewContainers(l.faults, l.o) // a runtime whose lists are complete
		require.NoError(t, err)
		require.ErrorContains(t, g.Collect(t.Context()), "remove container a-c-0 (c) of pod a: shim is away")
		require.Equal(t, 7*time.Second, grace)
		require.Contains(t, l.ids(), "a-c-0")
		stop = nil
		require.NoError(t, g.Collect(t.Context()))
		require.NotContains(t, l.ids(), "a-c-0")
	})
}

// The logs of a container are removed where they are below the root of logs, and nowhere else; links are not followed.
func TestLogsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		outside := filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.MkdirAll(outside, 0o755))
		kept := filepath.Join(outside, "0.log")
		require.NoError(t, os.WriteFile(kept, nil, 0o600))
		l.run("a", "c")
		l.run("b", "c")
		l.pods["a"], l.pods["b"] = gc.PodRemoved, gc.PodRemoved
		dir := filepath.Join(l.logs, "ns_na_a", "c")
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Symlink(outside, dir)) // as a container can that has the logs of the node mounted
		l.faults.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			snap, err := next.List(ctx)
			for i := range snap.Containers {
				if snap.Containers[i].PodUID == "b" {
					snap.Containers[i].LogPath = kept
				}
			}
			return snap, err
		}
		g, err := gc.NewContainers(l.faults, l.o)
		require.NoError(t, err)
		require.ErrorContains(t, g.Collect(t.Context()), "remove container a-c-0 (c) of pod a: ")
		require.FileExists(t, kept)
		require.NotContains(t, l.ids(), "b-c-0")
		require.Contains(t, l.ids(), "a-c-0", "its log could not be removed")
	})
}

// Directories of logs, by the kubelet's names and by older ones. While not all pods are known they stay, as do young ones, files, and
// those of pods that the runtime has something of. What has another name is not a pod's.
func TestLogDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
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
		l.o.Ready = func() bool { return ready }
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Equal(t, all, l.names(l.logs))
		ready = true
		l.o.MinDirAge = 0 // the default
		for _, name := range all {
			now := time.Now() // of the bubble
			require.NoError(t, os.Chtimes(filepath.Join(l.logs, name), now, now))
		}
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Equal(t, all, l.names(l.logs), "they are young")
		time.Sleep(10 * time.Minute)
		require.NoError(t, l.collector().Collect(t.Context()))
		require.Equal(t, []string{running, "journal", "name_namespace_321", "of_somebody_else_654", "x_y_654"}, l.names(l.logs))

		foreign := l.names(l.logs)
		require.NoError(t, os.Mkdir(filepath.Join(l.logs, "x_y_987"), 0o755))
		l.pods["987"], l.o.MinDirAge, l.o.KeepLogs = gc.PodRemoved, -1, true
		l.run("c", "exited")
		require.NoError(t, os.Symlink(filepath.Join(l.logs, "none", "0.log"), filepath.Join(l.links, "p_ns_c-0123456789.log")))
		require.NoError(t, l.collector().CollectTerminated(t.Context()))
		require.Subset(t, l.names(l.logs), append(foreign, "x_y_987", "ns_nc_c"))
		require.NotContains(t, l.names(l.links), "p_ns_c-0123456789.log", "dead links go also where logs are kept")

		l.o.LogRoot = filepath.Join(l.logs, "none")
		require.NoError(t, l.collector().Collect(t.Context()), "a directory that is not there is empty")
	})
}

// Links that lead nowhere go, unless their container may be rotating its log; others stay.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		l.run("a", "exited")
		config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "b", Name: "b", Namespace: "ns"}}
		sandbox, err := l.rt.RunSandbox(t.Context(), config)
		require.NoError(t, err)
		running, err := l.rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "running"}, config)
		require.NoError(t, err)
		require.NoError(t, l.rt.StartContainer(t.Context(), running))
		for _, name := range l.names(l.links) {
			require.NoError(t, os.Remove(filepath.Join(l.links, name)))
		}
		link := func(name, target string) { require.NoError(t, os.Symlink(target, filepath.Join(l.links, name))) }
		missing := filepath.Join(l.logs, "missing", "0.log")
		link("p_ns_c-abc.log", missing)                    // no ID: too short
		link("p_ns_noid.log", missing)                     // no ID at all
		link("p_ns_c-unknown-container.log", missing)      // not in the runtime
		link("p_ns_exited-aexited0.log", missing)          // likewise: IDs here have dashes
		link("p_ns_running-"+running+".log", missing)      // its ID is cut at the dash, too
		link("p_ns_c-elsewhere.log", "/nonexistent/0.log") // not below the logs
		link("p_ns_c-relative.log", "missing/0.log")       // likewise
		link("p_ns_c-escapes.log", l.logs+"/../other.log") // likewise
		link("readme.txt", missing)                        // no link to a log
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
		link("p_ns_rotating-rotatingcontainer012.log", missing) // its name was cut
		g, err := gc.NewContainers(l.faults, l.o)
		require.NoError(t, err)
		require.NoError(t, g.Collect(t.Context()))
		require.Equal(t, []string{
			"p_ns_c-afile.log", "p_ns_c-elsewhere.log", "p_ns_c-escapes.log", "p_ns_c-present.log", "p_ns_c-relative.log",
			"p_ns_rotating-rotatingcontainer012.log", "readme.txt",
		}, l.names(l.links))
	})
}

// The directory of a pod goes once what the pod has is given back and its volumes are empty. Data in a volume stays.
func TestPodDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers(t)
		for _, path := range []string{
			"empty/volumes/kubernetes.io~empty-dir/data", "empty/volume-subpaths/data/main/0", "empty/containers/main",
			"data/volumes/kubernetes.io~nfs/share/dir", "fails/containers", ".hidden", "running/containers",
		} {
			require.NoError(t, os.MkdirAll(filepath.Join(l.dirs, path), 0o755))
		}
		for _, uid := range []string{"empty", "data", "fails", ".hidden", "running"} {
			l.pods[uid] = gc.PodRemoved
		}
		l.run("running", "c")
		var released []string
		l.o.Release = func(_ context.Context, uid string) error {
			released = append(released, uid)
			if uid == "fails" {
				return errors.New("the server does not answer")
			}
			return nil
		}
		l.faults.RemoveContainerFunc = func(context.Context, cri.Runtime, string) error { return errors.New("busy") }
		err := l.collector().Collect(t.Context())
		require.ErrorContains(t, err, "remove "+filepath.Join(l.dirs, "data")+": data/volumes/kubernetes.io~nfs/share: the volume is not empty")
		require.ErrorContains(t, err, "remove "+filepath.Join(l.dirs, "fails")+": give back what the pod has: the server does not answer")
		require.Equal(t, []string{".hidden", "data", "fails", "running"}, l.names(l.dirs))
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
