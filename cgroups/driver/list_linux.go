// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// listChildren returns the sorted names of the cgroups directly below the cgroup dir. A name need not exist in all
// hierarchies.
func (s *hierarchies) listChildren(dir string) ([]string, error) {
	names := map[string]bool{}
	found := false
	for _, h := range s.all {
		below, err := h.listChildren(dir)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		for _, name := range below {
			names[name] = true
		}
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// listProcs returns the sorted PIDs of the processes in a cgroup and its descendants.
func (s *hierarchies) listProcs(dir string) ([]int, error) {
	var pids []int
	found := false
	// on v1 a process may be in a different cgroup in each hierarchy
	for _, h := range s.all {
		below, err := h.listProcs(dir)
		if err != nil {
			return nil, err
		}
		pids = append(pids, below...)
		found = found || len(below) > 0 || h.cgroupExists(dir)
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// listProcs returns the PIDs of the processes in a cgroup and its descendants.
func (h *hierarchy) listProcs(dir string) (pids []int, err error) {
	err = h.visitDescendants(dir, func(h *hierarchy, dir string) error {
		some, err := h.readProcs(dir)
		pids = append(pids, some...)
		return err
	})
	return pids, err
}

// readProcs returns the PIDs of the processes in one cgroup, or thread IDs for a threaded cgroup.
func (h *hierarchy) readProcs(dir string) ([]int, error) {
	file := "cgroup.procs"
	text, err := h.readFile(nil, dir, file)
	if errors.Is(err, unix.EOPNOTSUPP) { // the kernel does not list the processes of a threaded cgroup
		file = "cgroup.threads"
		text, err = h.readFile(nil, dir, file)
	}
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &fileError{file, err}
	}
	pids, err := cgroups.ParsePIDs(text)
	if err != nil {
		return nil, &fileError{file, err}
	}
	return pids, nil
}

// absoluteDirs returns the absolute directories of a cgroup, one per hierarchy. They may not exist.
func (s *hierarchies) absoluteDirs(dir string) []string {
	all := make([]string, 0, len(s.all))
	for _, h := range s.all {
		all = append(all, h.absolutePath(dir))
	}
	return all
}

func (t *treeV1) listChildren(dir string) ([]string, error) { return t.hierarchies.listChildren(dir) }

func (t *treeV2) listChildren(dir string) ([]string, error) { return t.hierarchies.listChildren(dir) }

func (t *treeV1) listProcs(dir string) ([]int, error) { return t.hierarchies.listProcs(dir) }

func (t *treeV2) listProcs(dir string) ([]int, error) { return t.hierarchies.listProcs(dir) }

func (t *treeV1) absoluteDirs(dir string) []string { return t.hierarchies.absoluteDirs(dir) }

func (t *treeV2) absoluteDirs(dir string) []string { return t.hierarchies.absoluteDirs(dir) }

func (t *treeV1) close() error { return t.hierarchies.close() }

func (t *treeV2) close() error { return t.hierarchies.close() }
