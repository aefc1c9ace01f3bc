// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// logDirectory returns the directory of the pod's logs, or nothing where none are kept, or its name cannot be told from
// that of another.
func (w *worker) logDirectory() string {
	if w.r.opts.Spec.LogRoot == "" || !plainName(w.id.Namespace) || !plainName(w.id.Name) || !plainName(w.id.UID) ||
		strings.Contains(w.id.Namespace+w.id.Name+w.id.UID, "_") { // which parts them in the name of the directory
		return ""
	}
	return podspec.LogDirectory(w.r.opts.Spec.LogRoot, w.id)
}

// remove removes a dead container, and before that its logs, which nobody would know of any more.
func (w *worker) remove(ctx context.Context, observed cri.Pod, id string) error {
	i := slices.IndexFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	if err := w.removeLogs(observed, &observed.Containers[i]); err != nil {
		return fmt.Errorf("remove logs of container %s: %w", id, err)
	}
	w.unlinkLogs(observed.Containers[i : i+1])
	return w.r.runtime.RemoveContainer(ctx, id)
}

// linkOf returns the path of the link to the log of a container, or nothing where there are none. Source:
// legacyLogSymlink in pkg/kubelet/kuberuntime/legacy.go.
func (w *worker) linkOf(container, id string) string {
	if w.r.opts.LogLinks == "" || w.logDirectory() == "" || !plainName(container) || !plainName(id) {
		return ""
	}
	const most, suffix = 255, ".log" // most is what the name of a file may have
	name := w.id.Name + "_" + w.id.Namespace + "_" + container + "-" + id
	return filepath.Join(w.r.opts.LogLinks, name[:min(len(name), most-len(suffix))]+suffix)
}

// linkLog makes the link to the log of a container that was started, if it has one.
func (w *worker) linkLog(container, id string, attempt uint32) {
	link := w.linkOf(container, id)
	if link == "" {
		return
	}
	log := filepath.Join(w.logDirectory(), podspec.LogPath(container, attempt))
	if _, err := os.Lstat(log); err != nil {
		return // a link to nothing is none
	}
	err := os.MkdirAll(w.r.opts.LogLinks, 0o755)
	if err == nil {
		err = os.Symlink(log, link)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		w.warn("link log", "container", container, "error", err)
	}
}

// unlinkLogs removes the links to the logs of containers.
func (w *worker) unlinkLogs(containers []cri.Container) {
	for i := range containers {
		if link := w.linkOf(containers[i].Name, containers[i].ID); link != "" {
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				w.warn("remove link to log", "container", containers[i].Name, "error", err)
			}
		}
	}
}

// removeLogs removes the log of a container that does not run, with what was rotated from it, unless another one writes to
// the same. Source: removeContainerLog in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (w *worker) removeLogs(observed cri.Pod, c *cri.Container) error {
	dir := w.logDirectory()
	shared := slices.ContainsFunc(observed.Containers, func(other cri.Container) bool {
		return other.ID != c.ID && other.Name == c.Name && other.Attempt == c.Attempt
	})
	if dir == "" || !plainName(c.Name) || c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown || shared {
		return nil
	}
	path := filepath.Join(dir, podspec.LogPath(c.Name, c.Attempt))
	names, err := filesIn(filepath.Dir(path))
	for _, name := range names {
		if log := filepath.Base(path); name == log || strings.HasPrefix(name, log+".") {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), name)))
		}
	}
	return err
}

// livesLogged returns how many lives of a container there are logs of. A runtime that has forgotten them all must not
// write to their logs again, and the restart count goes on. Source: calcRestartCountByLogDir in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (w *worker) livesLogged(container string) (n uint32) {
	dir := w.logDirectory()
	if dir == "" {
		return 0
	}
	names, err := filesIn(filepath.Join(dir, container))
	if err != nil {
		w.warn("lives of a container", "container", container, "error", err)
	}
	for _, name := range names {
		number, _, isLog := strings.Cut(name, ".log")
		if attempt, err := strconv.ParseUint(number, 10, 30); isLog && err == nil {
			n = max(n, uint32(attempt)+1)
		}
	}
	return n
}

// filesIn returns the names of what is in a directory but for directories. One that is not there is empty.
func filesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
