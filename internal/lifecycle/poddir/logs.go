// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Logs are the log files of one pod, and the links to them.
type Logs struct {
	Root  string // the directory of the logs of all pods; empty: none are kept
	Links string // the directory of the links; empty: there are none
	Pod   cri.PodIdentity
}

// Directory returns the directory of the pod's logs, or nothing where none are kept, or its name cannot be told from that of
// another.
func (l Logs) Directory() string {
	if l.Root == "" || !PlainName(l.Pod.Namespace) || !PlainName(l.Pod.Name) || !PlainName(l.Pod.UID) ||
		strings.Contains(l.Pod.Namespace+l.Pod.Name+l.Pod.UID, "_") { // which parts them in the name of the directory
		return ""
	}
	return podspec.LogDirectory(l.Root, l.Pod)
}

// link returns the path of the link to the log of a container, or nothing where there are none. Source:
// legacyLogSymlink in pkg/kubelet/kuberuntime/legacy.go.
func (l Logs) link(container, id string) string {
	if l.Links == "" || l.Directory() == "" || !PlainName(container) || !PlainName(id) {
		return ""
	}
	const most, suffix = 255, ".log" // most is what the name of a file may have
	name := l.Pod.Name + "_" + l.Pod.Namespace + "_" + container + "-" + id
	return filepath.Join(l.Links, name[:min(len(name), most-len(suffix))]+suffix)
}

// Link makes the link to the log of a container that was started, if it has one.
func (l Logs) Link(container, id string, attempt uint32) error {
	link := l.link(container, id)
	if link == "" {
		return nil
	}
	log := filepath.Join(l.Directory(), podspec.LogPath(container, attempt))
	if _, err := os.Lstat(log); err != nil {
		return nil // a link to nothing is none
	}
	err := os.MkdirAll(l.Links, 0o755)
	if err == nil {
		err = os.Symlink(log, link)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Unlink removes the links to the logs of containers.
func (l Logs) Unlink(containers []cri.Container) error {
	var errs []error
	for i := range containers {
		if link := l.link(containers[i].Name, containers[i].ID); link != "" {
			if err := notexist.Ignore(os.Remove(link)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Remove removes the log of a container that does not run, with what was rotated from it, unless another one writes to
// the same. Source: removeContainerLog in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (l Logs) Remove(observed cri.Pod, c *cri.Container) error {
	shared := slices.ContainsFunc(observed.Containers, func(other cri.Container) bool {
		return other.ID != c.ID && other.Name == c.Name && other.Attempt == c.Attempt
	})
	if l.Directory() == "" || !PlainName(c.Name) || c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown || shared {
		return nil
	}
	root, err := os.OpenRoot(l.Root)
	if err != nil {
		return unlessMissing(err)
	}
	defer root.Close()
	path := filepath.Join(filepath.Base(l.Directory()), podspec.LogPath(c.Name, c.Attempt))
	names, err := filesIn(root, filepath.Dir(path))
	for _, name := range names {
		if log := filepath.Base(path); name == log || strings.HasPrefix(name, log+".") {
			err = errors.Join(err, root.Remove(filepath.Join(filepath.Dir(path), name)))
		}
	}
	return err
}

// Attempts returns the attempt after the newest that there is a log of. A runtime that has forgotten all instances of a
// container must not write to their logs again, and the restart count goes on. Source: calcRestartCountByLogDir in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (l Logs) Attempts(container string) (n uint32, err error) {
	if l.Directory() == "" || !PlainName(container) {
		return 0, nil
	}
	root, err := os.OpenRoot(l.Root)
	if err != nil {
		return 0, unlessMissing(err)
	}
	defer root.Close()
	names, err := filesIn(root, filepath.Join(filepath.Base(l.Directory()), container))
	for _, name := range names {
		number, _, isLog := strings.Cut(name, ".log")
		if attempt, err := strconv.ParseUint(number, 10, 30); isLog && err == nil {
			n = max(n, uint32(attempt)+1)
		}
	}
	return n, err
}

// filesIn returns the names of what is in a directory of logs but for directories. One that is not there is empty. A link
// that leads out of the logs of the node is an error: a container that has them mounted can put one there.
func filesIn(root *os.Root, dir string) (names []string, err error) {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which waits for no pipe
	if err != nil {
		return nil, unlessMissing(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
