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

// linkSuffix ends the names of links to logs.
const linkSuffix = ".log"

// removeLinks removes links to logs that are gone, of containers that are gone or have exited: while a log is rotated it is away for a
// moment. Links that lead anywhere but to the logs of pods are left alone. Source: evictPodLogsDirectories in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) removeLinks(ctx context.Context, s *ContainerState) error {
	if g.opts.LogLinks == "" || g.opts.LogRoot == "" {
		return nil
	}
	links, err := os.OpenRoot(g.opts.LogLinks)
	if err != nil {
		return unlessMissing(err)
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
	err = eachEntry(links, ".", func(e fs.DirEntry) {
		if e.Type()&fs.ModeSymlink != 0 && strings.HasSuffix(e.Name(), linkSuffix) && g.dangles(links, logs, e.Name()) {
			dangling = append(dangling, e.Name())
		}
	})
	errs := []error{err}
	for _, name := range dangling {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		errs = append(errs, g.removeLink(ctx, s, links, name))
	}
	return errors.Join(errs...)
}

// dangles reports whether a link leads to a log that is not there. Without a root of logs none is.
func (g *Containers) dangles(links, logs *os.Root, name string) bool {
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
	_, err = logs.Stat(path) // which follows no link that leads out of it
	return errors.Is(err, fs.ErrNotExist)
}

// removeLink removes a link that leads nowhere, unless its container may still write to the log.
func (g *Containers) removeLink(ctx context.Context, s *ContainerState, links *os.Root, name string) error {
	if id := linkedContainer(name); id != "" {
		state, err := g.stateOf(ctx, s, id)
		switch {
		case errors.Is(err, cri.ErrNotFound):
		case err != nil:
			return fmt.Errorf("whether container %s still writes to the log that %s links: %w", id, name, err)
		case state != cri.ContainerExited:
			return nil
		}
	}
	if err := unlessMissing(links.Remove(name)); err != nil {
		return err
	}
	g.dirRemoved(filepath.Join(links.Name(), name))
	return nil
}

// minLinkedID is how long the ID of a container in the name of a link is at least. Source: getContainerIDFromLegacyLogSymlink in
// pkg/kubelet/kuberuntime/legacy.go.
const minLinkedID = 6

// linkedContainer returns the ID of the container in the name of a link, "POD_NAMESPACE_CONTAINER-ID.log", or nothing.
func linkedContainer(name string) string {
	name = strings.TrimSuffix(name, linkSuffix)
	id := name[strings.LastIndexByte(name, '-')+1:]
	if len(id) == len(name) || len(id) < minLinkedID {
		return ""
	}
	return id
}

// stateOf returns the state of a container, or [cri.ErrNotFound]. The name of a link may have been cut, and with it the ID.
func (g *Containers) stateOf(ctx context.Context, s *ContainerState, id string) (cri.ContainerState, error) {
	for i := range s.Snapshot.Containers {
		if c := &s.Snapshot.Containers[i]; c.ID == id || len(id) >= minLinkedID && strings.HasPrefix(c.ID, id) {
			if g.inspector == nil {
				return c.State, nil
			}
			now, err := within(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, c.ID) })
			return now.State, err
		}
	}
	return 0, cri.ErrNotFound
}
