// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// entriesAtATime is the number of directory entries that are read at once. A container may create any number of entries.
const entriesAtATime = 1000

// removeLog removes the log of a container and its rotated logs. Source: removeContainerLog in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (g *Containers) removeLog(s *ContainerState, c *cri.Container) error {
	if g.opts.LogRoot == "" || g.opts.KeepLogs || c.LogPath == "" {
		return nil
	}
	path, err := filepath.Rel(g.opts.LogRoot, c.LogPath)
	if err != nil || !filepath.IsLocal(path) || path == "." {
		return nil
	}
	for i := range s.Snapshot.Containers { // for example one with an equal attempt, created when this one could not be removed
		other := &s.Snapshot.Containers[i]
		if other.ID != c.ID && other.PodUID == c.PodUID && other.Name == c.Name && other.Attempt == c.Attempt {
			return nil
		}
	}
	root, err := os.OpenRoot(g.opts.LogRoot)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	var errs []error
	err = visitEntries(root, dir, func(e fs.DirEntry) {
		if name := e.Name(); !e.IsDir() && (name == base || strings.HasPrefix(name, base+".")) {
			errs = append(errs, ignoreNotExist(root.Remove(filepath.Join(dir, name))))
		}
	})
	return errors.Join(append(errs, ignoreNotExist(err))...)
}

// visitEntries calls f for each entry of the directory dir in root. If f removes entries, visitEntries may skip other
// entries. The next collection visits the skipped entries.
func visitEntries(root *os.Root, dir string, f func(e fs.DirEntry)) error {
	d, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not block on a pipe
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(entriesAtATime)
		for _, e := range entries {
			f(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeLogs removes the log directories of pods in state PodRemoved. Source: evictPodLogsDirectories in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) removeLogs(ctx context.Context, s *ContainerState) error {
	if s.NotReady || g.opts.KeepLogs {
		return nil
	}
	return g.removeDirs(ctx, s, g.opts.LogRoot, podUIDFromLogDir, nil)
}

// podUIDFromLogDir returns the UID in the name of a pod's log directory, NAMESPACE_NAME_UID, or "" for other names.
func podUIDFromLogDir(name string) string {
	switch parts := strings.Split(name, "_"); {
	case len(parts) == 3 && parts[0] != "" && parts[1] != "":
		return parts[2]
	// Old versions of Kubernetes named the directory UID.
	case len(parts) == 1 && isUID(name):
		return name
	}
	return ""
}

// isUID reports whether name can be a pod UID: 32 hexadecimal digits, with or without the dashes of a UUID.
func isUID(name string) bool {
	digits := name
	if len(name) == 36 && name[8] == '-' && name[13] == '-' && name[18] == '-' && name[23] == '-' {
		digits = strings.ReplaceAll(name, "-", "")
	}
	return len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// removeDirs removes the directories below path of removed pods that have no sandbox or container. If prepare is not nil, it is
// called before each removal. If prepare returns an error, the directory stays.
func (g *Containers) removeDirs(
	ctx context.Context, s *ContainerState, path string, uidOf func(name string) string, prepare func(ctx context.Context, root *os.Root, name string) error,
) error {
	if path == "" {
		return nil
	}
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("directories of pods: %w", err)
	}
	defer root.Close()
	inRuntime := podsInRuntime(s)
	var names []string
	err = visitEntries(root, ".", func(e fs.DirEntry) {
		pod := uidOf(e.Name())
		if e.IsDir() && pod != "" && e.Name()[0] != '.' && !inRuntime[pod] && s.podState(pod) == PodRemoved && g.isOldEnough(e, s.Now) {
			names = append(names, e.Name())
		}
	})
	errs := []error{err}
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if s.podState(uidOf(name)) != PodRemoved { // the pod was added back
			continue
		}
		err := g.removeDir(ctx, root, name, prepare)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", filepath.Join(path, name), err))
		}
	}
	return errors.Join(errs...)
}

func (g *Containers) removeDir(
	ctx context.Context, root *os.Root, name string, prepare func(ctx context.Context, root *os.Root, name string) error,
) error {
	if prepare != nil {
		if err := prepare(ctx, root, name); err != nil {
			return err
		}
	}
	path := filepath.Join(root.Name(), name)
	if err := rmtree.Remove(path); err != nil {
		return err
	}
	g.reportRemoved(path)
	return nil
}

func (g *Containers) reportRemoved(path string) {
	g.opts.Logger.Info("directory of a pod removed", "path", path)
	if g.opts.Hooks.DirRemoved != nil {
		g.opts.Hooks.DirRemoved(path)
	}
}

// podsInRuntime returns the UIDs of all pods that have a sandbox or container in s.
func podsInRuntime(s *ContainerState) map[string]bool {
	has := map[string]bool{}
	for i := range s.Snapshot.Sandboxes {
		has[s.Snapshot.Sandboxes[i].Pod.UID] = true
	}
	for i := range s.Snapshot.Containers {
		has[s.Snapshot.Containers[i].PodUID] = true
	}
	return has
}

// isOldEnough reports whether the directory was last changed at least MinDirAge ago.
func (g *Containers) isOldEnough(e fs.DirEntry, now time.Time) bool {
	if g.opts.MinDirAge < 0 {
		return true
	}
	// A younger directory may belong to a new pod whose sandbox does not exist yet.
	info, err := e.Info()
	return err == nil && now.Sub(info.ModTime()) >= g.opts.MinDirAge
}
