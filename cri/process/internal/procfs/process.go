// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package procfs reads processes from /proc, and kills a process only if its PID was not reused. It is independent of containers.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is the state of one process when it was read. PID and Start together identify it until the next boot, because PIDs are
// reused.
type Process struct {
	PID    int
	Parent int
	Start  uint64 // clock ticks after boot
	Zombie bool   // exited, not yet reaped by its parent
	CPU    uint64 // clock ticks of the process and of its reaped children
	RSS    uint64 // pages, including shared pages
}

// Indexes of fields of /proc/<pid>/stat after the name, see proc_pid_stat(5).
const (
	fieldState    = 0
	fieldParent   = 1
	fieldUserTime = 11 // followed by system time, and both of the children
	fieldStart    = 19
	fieldRSS      = 21
)

// ParseStat parses the content of a file /proc/<pid>/stat.
func ParseStat(stat []byte) (Process, error) {
	// The name is in parentheses and may itself contain spaces, parentheses and newlines: the last parenthesis ends it.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("parse stat %.40q: no name in parentheses", stat)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(stat[:open])))
	if err != nil {
		return Process{}, fmt.Errorf("parse stat %.40q: pid: %w", stat, err)
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= fieldRSS {
		return Process{}, fmt.Errorf("parse stat of %d: %d fields after the name, want more than %d", pid, len(fields), fieldRSS)
	}
	var bad error
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(fields[i], 10, 63)
		if err != nil && bad == nil {
			bad = fmt.Errorf("parse stat of %d: field %d: %w", pid, i+3, err)
		}
		return n
	}
	p := Process{
		PID:    pid,
		Parent: int(number(fieldParent)),
		Start:  number(fieldStart),
		Zombie: fields[fieldState] == "Z" || fields[fieldState] == "X",
		RSS:    number(fieldRSS),
	}
	for i := range 4 {
		p.CPU += number(fieldUserTime + i)
	}
	return p, bad
}

// ReadProcess reads the process with this PID from /proc. If it does not exist, the error wraps [os.ErrNotExist].
func ReadProcess(pid int) (Process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, err
	}
	return ParseStat(stat)
}

// ListProcesses reads all processes from /proc. It omits processes that exit meanwhile.
func ListProcesses() ([]Process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := ReadProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Tree contains the children of each process, by the PID of the parent.
type Tree map[int][]Process

// NewTree returns the processes grouped by their parents.
func NewTree(all []Process) Tree {
	t := make(Tree, len(all))
	for _, p := range all {
		t[p.Parent] = append(t[p.Parent], p)
	}
	return t
}

// Descendants returns the child processes of the process with this PID, their child processes, and so on.
func (t Tree) Descendants(pid int) []Process {
	// A scan of /proc is not atomic, so that a reused PID could form a cycle: each process is visited once.
	var found []Process
	seen := map[int]bool{pid: true}
	for next := []int{pid}; len(next) > 0; {
		parent := next[0]
		next = next[1:]
		for _, p := range t[parent] {
			if !seen[p.PID] {
				seen[p.PID] = true
				found = append(found, p)
				next = append(next, p.PID)
			}
		}
	}
	return found
}

// HasEnv reports whether a process was started with this entry in its environment; only root sees processes of other users. It
// may return false while the process executes a new program: call it twice to miss no process.
func HasEnv(pid int, entry string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// HasArgs reports whether the command line of the process with this PID consists of exactly these arguments, including
// argv[0].
func HasArgs(pid int, args ...string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && string(line) == strings.Join(args, "\x00")+"\x00"
}

// BootID returns the random ID of this boot of the machine.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(id)), nil
}
