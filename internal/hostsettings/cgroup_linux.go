// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostsettings

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// joinCgroup moves this process into the cgroup with an absolute name. It creates the cgroup in each hierarchy of cgroup v1, or in that of cgroup v2. If
// proc is that of another PID namespace, the process is in a container of the host, and joinCgroup does nothing. Source:
// ensureProcessInContainerWithOOMScore in pkg/kubelet/cm/container_manager_linux.go.
func joinCgroup(proc, name string) error {
	host, err := os.Readlink(filepath.Join(proc, "1/ns/pid"))
	if err != nil {
		return err
	}
	if own, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err != nil || own != host {
		return err
	}
	roots, err := hierarchyRoots(proc)
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		return errors.New("the host has no cgroups")
	}
	var errs []error
	for _, root := range roots {
		dir, err := makeCgroup(root, path.Clean("/"+name))
		if err == nil {
			err = writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(os.Getpid()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hierarchyRoots returns the directories of the root cgroups: one for each hierarchy of cgroup v1, or else that of cgroup v2.
func hierarchyRoots(proc string) (roots []string, err error) {
	text, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	unified, seen := "", map[string]bool{}
	for line := range strings.Lines(string(text)) {
		mount, filesystem, _ := strings.Cut(strings.TrimSpace(line), " - ")
		fields, source := strings.Fields(mount), strings.Fields(filesystem)
		if len(fields) < 5 || fields[3] != "/" || len(source) < 3 {
			continue // fields[3] is the cgroup at the mount point
		}
		switch {
		case source[0] == "cgroup2":
			unified = fields[4]
		case source[0] == "cgroup" && !seen[source[2]]: // a hierarchy may have several mounts
			seen[source[2]] = true
			roots = append(roots, fields[4])
		}
	}
	if len(roots) == 0 && unified != "" {
		roots = []string{unified}
	}
	return roots, nil
}

// makeCgroup creates the cgroup with an absolute name, and its ancestors, below the directory of a root cgroup. It returns the directory of the cgroup.
func makeCgroup(root, name string) (dir string, err error) {
	dir = root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		parent := dir
		dir = filepath.Join(parent, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inheritSet(parent, dir, file); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// inheritSet copies a CPU set or a set of NUMA nodes from the parent of a cgroup v1 where it is empty: an empty set admits no process. Cgroups of other
// hierarchies do not have the file, and those of cgroup v2 may be empty.
func inheritSet(parent, dir, file string) error {
	own, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(bytes.TrimSpace(own)) > 0 {
		return nil
	}
	inherited, parentErr := os.ReadFile(filepath.Join(parent, file))
	if err := errors.Join(err, parentErr); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if len(bytes.TrimSpace(inherited)) == 0 {
		return nil
	}
	return writeFile(filepath.Join(dir, file), string(inherited))
}
