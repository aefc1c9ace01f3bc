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

// entriesAtATime is how many entries of a directory are read at a time: a container may have put any number there.
const entriesAtATime = 1000

// removeLog removes the log of a container that does not run, with what was rotated from it. A log that is not below the root of
// logs is not ours. Source: removeContainerLog in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (g *Containers) removeLog(s *ContainerState, c *cri.Container) error {
	if g.opts.LogRoot == "" || g.opts.KeepLogs || c.LogPath == "" {
		return nil
	}
	path, err := filepath.Rel(g.opts.LogRoot, c.LogPath)
	if err != nil || !filepath.IsLocal(path) || path == "." {
		return nil
	}
	for i := range s.Snapshot.Containers { // such as one of the same attempt that was made when this one could not be removed
		other := &s.Snapshot.Containers[i]
		if other.ID != c.ID && other.PodUID == c.PodUID && other.Name == c.Name && other.Attempt == c.Attempt {
			return nil
		}
	}
	root, err := os.OpenRoot(g.opts.LogRoot)
	if err != nil {
		return unlessMissing(err)
	}
	defer root.Close()
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	var errs []error
	err = eachEntry(root, dir, func(e fs.DirEntry) {
		if name := e.Name(); !e.IsDir() && (name == base || strings.HasPrefix(name, base+".")) {
			errs = append(errs, unlessMissing(root.Remove(filepath.Join(dir, name))))
		}
	})
	return errors.Join(append(errs, unlessMissing(err))...)
}

// eachEntry calls f for each entry of a directory. What f removes may make it miss others, which come the next time.
func eachEntry(root *os.Root, dir string, f func(e fs.DirEntry)) error {
	d, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which waits for no pipe
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

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeLogs removes the directories of the logs of pods that were removed. Source: evictPodLogsDirectories in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) removeLogs(ctx context.Context, s *ContainerState) error {
	if s.NotReady || g.opts.KeepLogs {
		return nil
	}
	return g.removeDirs(ctx, s, g.opts.LogRoot, podOfLogs, nil)
}

// podOfLogs returns the UID in the name of a directory of logs, which is NAMESPACE_NAME_UID, and was the UID alone once. Of any other
// name, such as that of a directory which somebody else has there, it is empty.
func podOfLogs(name string) string {
	switch parts := strings.Split(name, "_"); {
	case len(parts) == 3 && parts[0] != "" && parts[1] != "":
		return parts[2]
	case len(parts) == 1 && isUID(name):
		return name
	}
	return ""
}

// isUID reports whether a name is a UID as API servers make them, or that of a static pod: 32 hexadecimal digits, which may have dashes
// after the 8th, 12th, 16th and 20th.
func isUID(name string) bool {
	digits := name
	if len(name) == 36 && name[8] == '-' && name[13] == '-' && name[18] == '-' && name[23] == '-' {
		digits = strings.ReplaceAll(name, "-", "")
	}
	return len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// removeDirs removes the directories below a root of pods that were removed and of which the runtime has nothing. uid says whose a
// directory is, and first, which may be nil, is called before it is removed.
func (g *Containers) removeDirs(
	ctx context.Context, s *ContainerState, path string, uid func(name string) string, first func(ctx context.Context, root *os.Root, name string) error,
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
	has := podsOf(s)
	var names []string
	err = eachEntry(root, ".", func(e fs.DirEntry) {
		pod := uid(e.Name())
		if e.IsDir() && pod != "" && e.Name()[0] != '.' && !has[pod] && s.pod(pod) == PodRemoved && g.oldEnough(e, s.Now) {
			names = append(names, e.Name())
		}
	})
	errs := []error{err}
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if s.pod(uid(name)) != PodRemoved { // it has come back
			continue
		}
		err := g.removeDir(ctx, root, name, first)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", filepath.Join(path, name), err))
		}
	}
	return errors.Join(errs...)
}

func (g *Containers) removeDir(
	ctx context.Context, root *os.Root, name string, first func(ctx context.Context, root *os.Root, name string) error,
) error {
	if first != nil {
		if err := first(ctx, root, name); err != nil {
			return err
		}
	}
	path := filepath.Join(root.Name(), name)
	if err := rmtree.Remove(path); err != nil {
		return err
	}
	g.dirRemoved(path)
	return nil
}

func (g *Containers) dirRemoved(path string) {
	g.opts.Logger.Info("directory of a pod removed", "path", path)
	if g.opts.Hooks.Dir != nil {
		g.opts.Hooks.Dir(path)
	}
}

// podsOf returns the pods of which the runtime has anything, by UID.
func podsOf(s *ContainerState) map[string]bool {
	has := map[string]bool{}
	for i := range s.Snapshot.Sandboxes {
		has[s.Snapshot.Sandboxes[i].Pod.UID] = true
	}
	for i := range s.Snapshot.Containers {
		has[s.Snapshot.Containers[i].PodUID] = true
	}
	return has
}

// oldEnough reports whether a directory has not changed for a while: whoever starts a pod makes its directories first.
func (g *Containers) oldEnough(e fs.DirEntry, now time.Time) bool {
	if g.opts.MinDirAge < 0 {
		return true
	}
	info, err := e.Info()
	return err == nil && now.Sub(info.ModTime()) >= g.opts.MinDirAge
}
