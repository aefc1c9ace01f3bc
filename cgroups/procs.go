// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
)

// ParsePIDs parses cgroup.procs, cgroup.threads and tasks, in the kernel's order, which is none; a process may be
// listed twice. A 0 stands for a process that the reader's PID namespace does not show. It is left out: as the target of
// a signal it would mean the reader itself.
func ParsePIDs(b []byte) ([]int, error) {
	if len(b) == 0 {
		return nil, nil
	}
	pids := make([]int, 0, bytes.Count(b, []byte("\n"))+1)
	s := scanner{kind: "cgroup procs", rest: b}
	for s.nextLine() {
		pid := s.parse(s.text)
		if pid > math.MaxInt32 {
			s.fail("no process", s.text)
		}
		if pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return pids, nil
}

// ParseControllers parses cgroup.controllers and cgroup.subtree_control: the names of controllers in the kernel's
// order.
func ParseControllers(b []byte) ([]string, error) {
	s := scanner{kind: "controllers", rest: b}
	var names []string
	if s.nextLine() && len(s.text) > 0 {
		for name := range bytes.SplitSeq(s.text, []byte(" ")) {
			if len(name) == 0 || bytes.ContainsFunc(name, notInController) {
				s.fail("no controller", name)
			}
			names = append(names, string(name))
		}
	}
	if s.nextLine() {
		s.fail("more than one line", s.text)
	}
	if s.err != nil {
		return nil, s.err
	}
	return names, nil
}

func notInController(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }
