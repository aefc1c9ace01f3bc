// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// linkSuffix is the suffix of links to logs.
const linkSuffix = ".log"

// removeLinks removes links in Options.LogLinks to missing logs of exited containers. Source: evictPodLogsDirectories in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) removeLinks(ctx context.Context, s *ContainerState) error {
	if g.opts.LogLinks == "" || g.opts.LogRoot == "" {
		return nil
	}
	links, err := os.OpenRoot(g.opts.LogLinks)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer links.Close()
	logs, err := os.OpenRoot(g.opts.LogRoot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("links to logs: %w", err)
	}
	if logs != nil {
		defer logs.Close()
	}
	var dangling []string
	err = visitEntries(links, ".", func(e fs.DirEntry) {
		if e.Type()&fs.ModeSymlink != 0 && strings.HasSuffix(e.Name(), linkSuffix) && g.isDangling(links, logs, e.Name()) {
			dangling = append(dangling, e.Name())
		}
	})
	errs := []error{err}
	for _, name := range dangling {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		// It keeps the link of a running container: a log is missing for a moment during its rotation.
		errs = append(errs, g.removeLink(ctx, s, links, name))
	}
	return errors.Join(errs...)
}

// isDangling reports whether the link in this directory points to a missing log below LogRoot. logs is LogRoot, nil if it
// does not exist.
func (g *Containers) isDangling(links, logs *os.Root, name string) bool {
	target, err := links.Readlink(name)
	if err != nil {
		return false
	}
	path, err := filepath.Rel(g.opts.LogRoot, target)
	if err != nil || !filepath.IsAbs(target) || !filepath.IsLocal(path) {
		return false
	}
	if logs == nil {
		return true
	}
	_, err = logs.Stat(path) // does not follow links out of LogRoot
	return errors.Is(err, fs.ErrNotExist)
}

// removeLink removes the link called name, whose log does not exist. It keeps the link of a container that has not exited:
// a log is missing for a moment during its rotation.
func (g *Containers) removeLink(ctx context.Context, s *ContainerState, links *os.Root, name string) error {
	if id := containerIDFromLink(name); id != "" {
		state, err := g.readContainerState(ctx, s, id)
		switch {
		case errors.Is(err, cri.ErrNotFound):
		case err != nil:
			return fmt.Errorf("whether container %s still writes to the log that %s links: %w", id, name, err)
		case state != cri.ContainerExited:
			return nil
		}
	}
	if err := ignoreNotExist(links.Remove(name)); err != nil {
		return err
	}
	g.reportRemoved(filepath.Join(links.Name(), name))
	return nil
}

// minLinkedID is the least length of a container ID in the name of a link. Source: getContainerIDFromLegacyLogSymlink in
// pkg/kubelet/kuberuntime/legacy.go.
const minLinkedID = 6

// containerIDFromLink returns the ID in a link name such as POD_NAMESPACE_CONTAINER-ID.log, or "" if there is none.
func containerIDFromLink(name string) string {
	name = strings.TrimSuffix(name, linkSuffix)
	id := name[strings.LastIndexByte(name, '-')+1:]
	if len(id) == len(name) || len(id) < minLinkedID {
		return ""
	}
	return id
}

// readContainerState returns the current state of the container with this ID, or [cri.ErrNotFound].
func (g *Containers) readContainerState(ctx context.Context, s *ContainerState, idOrPrefix string) (cri.ContainerState, error) {
	for i := range s.Snapshot.Containers {
		// The names of links contain truncated IDs.
		if c := &s.Snapshot.Containers[i]; c.ID == idOrPrefix || len(idOrPrefix) >= minLinkedID && strings.HasPrefix(c.ID, idOrPrefix) {
			if g.inspector == nil {
				return c.State, nil
			}
			now, err := callWithTimeout(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, c.ID) })
			return now.State, err
		}
	}
	return 0, cri.ErrNotFound
}
