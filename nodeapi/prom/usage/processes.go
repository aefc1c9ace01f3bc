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

// Limits for reading /proc, because a container may have any number of processes and open files.
const (
	maxPerCgroup = 10_000  // processes and open files of a cgroup; beyond it the counts are missing
	maxPerPage   = 100_000 // of all cgroups together
	maxLimits    = 16 << 10
	chunk        = 256 // open files that are listed per call
)

// openCounts has the numbers of open files and sockets of the processes of a cgroup.
type openCounts struct {
	valid          bool
	files, sockets int
}

// procReader reads the open files and limits of processes from /proc.
type procReader struct {
	fs.FS
	budget int // processes and open files that the page may still read
}

// errTooMany is the error if a cgroup has more processes and open files than the limit.
var errTooMany = errors.New("too many")

// readProcesses reads the number of open files of a cgroup's processes, or their limit, as parts selects.
func (p *procReader) readProcesses(sample *stats.Sample, parts procParts) (info processInfo) {
	pids := sample.Stats.Pids.Procs
	if parts&procOpenFiles != 0 {
		info.open = p.countOpenFiles(pids)
	}
	if parts&procLimits == 0 {
		return info
	}
	switch kind := kindOf(sample); {
	case sample.Path == "" && sample.Leaf == "":
		info.openFileLimit, info.hasLimit = p.readOpenFileLimit(1)
	case (kind == ofContainer || kind == ofSandbox) && len(pids) > 0:
		info.openFileLimit, info.hasLimit = p.readOpenFileLimit(pids[0]) // that of the first process counts
	}
	return info
}

// countOpenFiles counts the open files of these processes. The result is invalid if there are more than maxPerCgroup or a
// process cannot be read.
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

// countProcess adds the open files in dir, a directory /proc/PID/fd, to counts. It subtracts them from budget, and returns
// errTooMany if that is exceeded.
func (p *procReader) countProcess(dir string, counts *openCounts, budget *int) error {
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
		counts.files += len(entries)
		for _, e := range entries {
			if link, err := fs.ReadLink(p.FS, dir+"/"+e.Name()); err == nil && strings.HasPrefix(link, "socket:") {
				counts.sockets++
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

// readOpenFileLimit returns a process's soft limit of open files; -1 means unlimited. ok is false if the limit cannot be
// read.
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

// parseOpenFileLimit returns the soft limit in the line "Max open files 1024 524288 files" of /proc/PID/limits, or -1 for
// unlimited.
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

// processFamilies returns the metrics about the open files of processes and their limit.
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
