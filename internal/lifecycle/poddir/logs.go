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

// Logs manages the log files of one pod and the links to them.
type Logs struct {
	Root  string // log directory of all pods; empty: no log files
	Links string // directory of the links; empty: no links
	Pod   cri.PodIdentity
}

// Directory returns the log directory of the pod, named NAMESPACE_NAME_UID. It returns "" if the agent writes no logs, or if
// the namespace, name or UID of the pod contains an underscore or is not a safe file name.
func (l Logs) Directory() string {
	if l.Root == "" || !IsFileName(l.Pod.Namespace) || !IsFileName(l.Pod.Name) || !IsFileName(l.Pod.UID) ||
		strings.Contains(l.Pod.Namespace+l.Pod.Name+l.Pod.UID, "_") { // separates the parts of the directory name
		return ""
	}
	return podspec.LogDirectory(l.Root, l.Pod)
}

// linkPath returns the path of the link to a container log, or "" without one. Source: legacyLogSymlink in
// pkg/kubelet/kuberuntime/legacy.go.
func (l Logs) linkPath(container, id string) string {
	if l.Links == "" || l.Directory() == "" || !IsFileName(container) || !IsFileName(id) {
		return ""
	}
	const most, suffix = 255, ".log" // maximum length of a file name
	name := l.Pod.Name + "_" + l.Pod.Namespace + "_" + container + "-" + id
	return filepath.Join(l.Links, name[:min(len(name), most-len(suffix))]+suffix)
}

// CreateLink creates the link to the log file of a started container. It does nothing if the log file does not exist.
func (l Logs) CreateLink(container, id string, attempt uint32) error {
	link := l.linkPath(container, id)
	if link == "" {
		return nil
	}
	log := filepath.Join(l.Directory(), podspec.LogPath(container, attempt))
	if _, err := os.Lstat(log); err != nil {
		return nil // do not create a dangling link
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

// RemoveLinks removes the links to the log files of these containers. The log files stay.
func (l Logs) RemoveLinks(containers []cri.Container) error {
	var errs []error
	for i := range containers {
		if link := l.linkPath(containers[i].Name, containers[i].ID); link != "" {
			if err := notexist.Ignore(os.Remove(link)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Remove removes the log files of a container that does not run, including rotated files. It keeps files that another
// container in observed shares. Source: removeContainerLog in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (l Logs) Remove(observed cri.Pod, container *cri.Container) error {
	shared := slices.ContainsFunc(observed.Containers, func(other cri.Container) bool {
		return other.ID != container.ID && other.Name == container.Name && other.Attempt == container.Attempt
	})
	if l.Directory() == "" || !IsFileName(container.Name) || container.State == cri.ContainerRunning || container.State == cri.ContainerUnknown || shared {
		return nil
	}
	root, err := os.OpenRoot(l.Root)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	path := filepath.Join(filepath.Base(l.Directory()), podspec.LogPath(container.Name, container.Attempt))
	names, err := listFiles(root, filepath.Dir(path))
	for _, name := range names {
		if log := filepath.Base(path); name == log || strings.HasPrefix(name, log+".") {
			err = errors.Join(err, root.Remove(filepath.Join(filepath.Dir(path), name)))
		}
	}
	return err
}

// NextAttempt returns the attempt number of the next container instance: that of its newest log file plus one, or 0. The
// restart count thus continues even if the runtime has lost its containers. Source: calcRestartCountByLogDir in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (l Logs) NextAttempt(container string) (n uint32, err error) {
	if l.Directory() == "" || !IsFileName(container) {
		return 0, nil
	}
	root, err := os.OpenRoot(l.Root)
	if err != nil {
		return 0, ignoreNotExist(err)
	}
	defer root.Close()
	names, err := listFiles(root, filepath.Join(filepath.Base(l.Directory()), container))
	for _, name := range names {
		number, _, isLog := strings.Cut(name, ".log")
		if attempt, err := strconv.ParseUint(number, 10, 30); isLog && err == nil {
			n = max(n, uint32(attempt)+1)
		}
	}
	return n, err
}

// listFiles returns the names of the files in a directory, none if it does not exist.
func listFiles(root *os.Root, dir string) (names []string, err error) {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not block on a named pipe
	if err != nil {
		// An error for a link out of root, which a container that mounts the logs may have created.
		return nil, ignoreNotExist(err)
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

// ignoreNotExist returns nil if err wraps [fs.ErrNotExist], and err otherwise.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
