// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/stats"
)

// How much of /proc a page looks at. Who runs in a container chooses how many processes and open files it has.
const (
	maxPerCgroup = 10_000  // processes and open files of a cgroup; of one with more nothing is known
	maxPerPage   = 100_000 // of all cgroups together
	maxLimits    = 16 << 10
	chunk        = 256 // open files that are listed at once
)

// opened is what the processes of a cgroup have open.
type openCounts struct {
	valid          bool
	files, sockets int
}

// procReader looks at processes.
type procReader struct {
	fs.FS
	budget int // how much a page may look at still
}

// errTooMany says that a cgroup has more than is looked at.
var errTooMany = errors.New("too many")

// processes looks at the processes of a cgroup. Only containers, sandboxes and the machine have a first process, whose limits tell of
// the others.
func (p *procReader) readProcesses(s *stats.Sample, reads procParts) (all processInfo) {
	pids := s.Stats.Pids.Procs
	if reads&procOpenFiles != 0 {
		all.open = p.countOpenFiles(pids)
	}
	if reads&procLimits == 0 {
		return all
	}
	switch kind := kindOf(s); {
	case s.Path == "" && s.Leaf == "":
		all.openFileLimit, all.hasLimit = p.readOpenFileLimit(1)
	case (kind == ofContainer || kind == ofSandbox) && len(pids) > 0:
		all.openFileLimit, all.hasLimit = p.readOpenFileLimit(pids[0])
	}
	return all
}

// open counts what processes have open. Nothing is known of more than maxLooked of them, and of those that nobody lets us look at.
// A process that has exited has nothing open.
func (p *procReader) countOpenFiles(pids []int) openCounts {
	o := openCounts{valid: true}
	budget := min(p.budget, maxPerCgroup)
	before := budget
	for _, pid := range pids {
		if err := p.countProcess(strconv.Itoa(pid)+"/fd", &o, &budget); err != nil && !errors.Is(err, fs.ErrNotExist) && !isExited(err) {
			o = openCounts{}
			break
		}
	}
	p.budget -= before - budget
	return o
}

// count counts what one process has open.
func (p *procReader) countProcess(dir string, o *openCounts, budget *int) error {
	if *budget--; *budget < 0 {
		*budget = 0
		return errTooMany
	}
	d, err := p.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	list, ok := d.(fs.ReadDirFile)
	if !ok {
		return fs.ErrInvalid
	}
	for {
		entries, err := list.ReadDir(chunk)
		if *budget -= len(entries); *budget < 0 {
			*budget = 0
			return errTooMany
		}
		o.files += len(entries)
		for _, e := range entries {
			if link, err := fs.ReadLink(p.FS, dir+"/"+e.Name()); err == nil && strings.HasPrefix(link, "socket:") {
				o.sockets++
			}
		}
		switch {
		case errors.Is(err, io.EOF), err == nil && len(entries) == 0:
			return nil
		case err != nil:
			return err
		}
	}
}

// openFiles returns the soft limit of open files of a process, -1 for none.
func (p *procReader) readOpenFileLimit(pid int) (limit int64, ok bool) {
	f, err := p.Open(strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLimits))
	if err != nil {
		return 0, false
	}
	return parseOpenFileLimit(text)
}

// parseOpenFiles finds the soft limit in /proc/PID/limits: "Max open files            1024                 524288               files".
func parseOpenFileLimit(text []byte) (limit int64, ok bool) {
	for line := range bytes.Lines(text) {
		rest, found := bytes.CutPrefix(line, []byte("Max open files"))
		if !found {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) != 3 {
			return 0, false
		}
		if fields[0] == "unlimited" {
			return -1, true
		}
		limit, err := strconv.ParseInt(fields[0], 10, 64)
		return limit, err == nil && limit >= 0
	}
	return 0, false
}

// processFamilies are about what processes have open.
func processFamilies() []family {
	ofOpened := func(name, help string, value func(o openCounts) int) family {
		return family{name: name, kind: gauge, help: help, procParts: procOpenFiles, parts: partsProcs, emit: func(e *emitter, r *cgroupRow) {
			if r.open.valid {
				e.writeValue(float64(value(r.open)))
			}
		}}
	}
	return []family{
		ofOpened("container_file_descriptors", "Open files of the processes of the cgroup itself.", func(o openCounts) int { return o.files }),
		ofOpened("container_sockets", "Open sockets of the processes of the cgroup itself.", func(o openCounts) int { return o.sockets }),
		{
			name: "container_ulimits_soft", kind: gauge, help: "Soft limit of the first process, -1 for none.", procParts: procLimits, parts: partsProcs,
			emit: func(e *emitter, r *cgroupRow) {
				if r.hasLimit {
					e.writeWithLabels(`ulimit="max_open_files"`, float64(r.openFileLimit))
				}
			},
		},
	}
}
