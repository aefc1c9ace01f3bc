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

// children returns the cgroups directly below one in any hierarchy.
func (s *shared) children(dir string) ([]string, error) {
	names := map[string]bool{}
	found := false
	for _, h := range s.all {
		below, err := h.children(dir)
		if absent(err) {
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

// procs returns the processes of a cgroup and of all below it, in all hierarchies: a process may be in different ones
// of each.
func (s *shared) procs(dir string) ([]int, error) {
	var pids []int
	found := false
	for _, h := range s.all {
		below, err := h.procsBelow(dir)
		if err != nil {
			return nil, err
		}
		pids = append(pids, below...)
		found = found || len(below) > 0 || h.exists(dir)
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// procsBelow returns the processes of a cgroup and of all below it.
func (h *hierarchy) procsBelow(dir string) (pids []int, err error) {
	err = h.walk(dir, func(h *hierarchy, dir string) error {
		some, err := h.procs(dir)
		pids = append(pids, some...)
		return err
	})
	return pids, err
}

// procs returns the processes of one cgroup, or of a threaded one, which has no processes of its own, the threads.
func (h *hierarchy) procs(dir string) ([]int, error) {
	file := "cgroup.procs"
	text, err := h.read(nil, dir, file)
	if errors.Is(err, unix.EOPNOTSUPP) {
		file = "cgroup.threads"
		text, err = h.read(nil, dir, file)
	}
	if absent(err) {
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

// dirs returns the directories of a cgroup in all hierarchies.
func (s *shared) dirs(dir string) []string {
	all := make([]string, 0, len(s.all))
	for _, h := range s.all {
		all = append(all, h.path(dir))
	}
	return all
}
