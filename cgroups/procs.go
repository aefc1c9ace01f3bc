// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
)

// ParsePIDs parses cgroup.procs, cgroup.threads or tasks, in the kernel's order, which is not sorted and may repeat a PID.
// It skips 0, a process outside the PID namespace, because kill(0) would signal the reader's own process group.
func ParsePIDs(content []byte) ([]int, error) {
	if len(content) == 0 {
		return nil, nil
	}
	pids := make([]int, 0, bytes.Count(content, []byte("\n"))+1)
	s := scanner{kind: "cgroup procs", rest: content}
	for s.nextLine() {
		pid := s.parseNumber(s.text)
		if pid > math.MaxInt32 {
			s.setError("no process", s.text)
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

// ParseControllers parses cgroup.controllers or cgroup.subtree_control. It returns the controllers in the kernel's order.
func ParseControllers(content []byte) ([]string, error) {
	s := scanner{kind: "controllers", rest: content}
	var names []string
	if s.nextLine() && len(s.text) > 0 {
		for name := range bytes.SplitSeq(s.text, []byte(" ")) {
			if len(name) == 0 || bytes.ContainsFunc(name, isNotControllerRune) {
				s.setError("no controller", name)
			}
			names = append(names, string(name))
		}
	}
	if s.nextLine() {
		s.setError("more than one line", s.text)
	}
	if s.err != nil {
		return nil, s.err
	}
	return names, nil
}

func isNotControllerRune(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }
