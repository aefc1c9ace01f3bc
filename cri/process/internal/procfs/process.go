// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package procfs reads processes from /proc and kills them by identity. It knows nothing of containers.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one process at the time it was read. PID and Start together name it for as long as the machine
// runs: a later process may get the same PID, but not with the same start.
type Process struct {
	PID    int
	Parent int
	Start  uint64 // clock ticks after boot
	Zombie bool   // it has exited and waits for its parent
	CPU    uint64 // clock ticks of the process and of the children it waited for
	RSS    uint64 // pages, those shared with others included
}

// Fields of /proc/<pid>/stat counted from the one after the name, see proc_pid_stat(5).
const (
	fieldState    = 0
	fieldParent   = 1
	fieldUserTime = 11 // followed by system time, and both of the children
	fieldStart    = 19
	fieldRSS      = 21
)

// ParseStat reads the content of /proc/<pid>/stat.
func ParseStat(stat []byte) (Process, error) {
	// The name is in parentheses and may itself hold spaces, parentheses and newlines: only the last one closes.
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

// Read returns a process, or an error wrapping [os.ErrNotExist] when there is none.
func Read(pid int) (Process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, err
	}
	return ParseStat(stat)
}

// All returns every process. Those that end while it reads are left out.
func All() ([]Process, error) {
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
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Tree is processes by their parent.
type Tree map[int][]Process

// NewTree sorts processes by their parent.
func NewTree(all []Process) Tree {
	t := make(Tree, len(all))
	for _, p := range all {
		t[p.Parent] = append(t[p.Parent], p)
	}
	return t
}

// Descendants returns the children of a process, their children, and so on.
func (t Tree) Descendants(pid int) []Process {
	// A snapshot of /proc is not taken at one instant, so a reused PID could close a circle: each is visited once.
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

// HasEnv reports whether a process was started with an environment entry. It sees no later change, nothing of
// processes of other users unless it is root, and nothing of a process in the middle of exec, when the kernel shows
// neither the old environment nor the new one: what must not be missed is asked for twice.
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

// HasArgs reports whether a process shows exactly these arguments, the name of the program first.
func HasArgs(pid int, args ...string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && string(line) == strings.Join(args, "\x00")+"\x00"
}

// BootID returns what tells this boot of the machine from every other.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(id)), nil
}
