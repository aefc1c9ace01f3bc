// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// reader reads files of one cgroup into one buffer and keeps the first error. A missing file, for example of a missing
// controller, leaves its value at zero. readError distinguishes that from a missing cgroup.
type reader struct {
	h              *hierarchy
	dir            string
	entered        *hierarchy // hierarchy in which own is open; nil: own is not open
	own            hierarchy  // the cgroup, opened by enterCgroup
	found          bool       // at least one file existed
	buf            []byte
	absent         bool   // the cgroup does not exist
	lostController string // a controller whose file is missing although all kernels have it; empty: none
	err            error
}

func newReader(dir string) *reader { return &reader{dir: dir, buf: make([]byte, 0, 4096)} }

// getReader returns a reader for a cgroup. Readers are reused, because a node summary needs hundreds of them every few
// seconds.
func (s *hierarchies) getReader(dir string) *reader {
	r, ok := s.readers.Get().(*reader)
	if !ok {
		return newReader(dir)
	}
	*r = reader{dir: dir, buf: r.buf}
	return r
}

// putReader makes the reader available for reuse. It drops a reader with a large buffer, because few files need a large
// buffer.
func (s *hierarchies) putReader(reader *reader) {
	reader.leaveCgroup()
	if cap(reader.buf) <= 16<<10 {
		s.readers.Put(reader)
	}
}

// useHierarchy selects the hierarchy for the following reads, and returns r. With nil, the reads find no file.
func (r *reader) useHierarchy(h *hierarchy) *reader {
	r.leaveCgroup()
	r.h = h
	return r
}

// enterCgroup opens the directory of the cgroup in a hierarchy, which makes several reads faster, and returns r.
func (r *reader) enterCgroup(h *hierarchy) *reader {
	if h != nil && r.entered == h {
		return r
	}
	r.useHierarchy(h)
	// without a hierarchy or the cgroup, the reads find no file
	if h == nil || r.err != nil {
		return r
	}
	fd, err := h.openAt(r.dir, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case isAbsent(err):
		r.h, r.absent = nil, true
	case err != nil:
		r.err = err
	default:
		r.own = hierarchy{dir: h.dir, fd: fd}
		r.h, r.entered = &r.own, h
	}
	return r
}

// leaveCgroup closes the cgroup that enterCgroup has opened. It does nothing if none is open.
func (r *reader) leaveCgroup() {
	if r.entered != nil {
		unix.Close(r.own.fd)
		r.h, r.entered = nil, nil
	}
}

// readFile returns the content of a file of the cgroup, which is valid until the next read. ok is false on error.
func (r *reader) readFile(file string) (text []byte, ok bool) {
	if r.err != nil || r.h == nil {
		return nil, false
	}
	dir := r.dir
	if r.entered != nil {
		dir = ""
	}
	text, err := r.h.readFile(r.buf[:0], dir, file)
	switch {
	case isAbsent(err):
		r.absent = r.absent || !cmp.Or(r.entered, r.h).cgroupExists(r.dir)
		if isOnAllKernels(file) {
			r.lostController, _, _ = strings.Cut(file, ".")
		}
		return nil, false
	case errors.Is(err, unix.EOPNOTSUPP): // for example disabled pressure
		return nil, false
	case err != nil:
		r.err = &fileError{file, err}
		return nil, false
	}
	r.buf, r.found = text, true
	return text, true
}

// isOnAllKernels reports whether every kernel has this file in a cgroup, except the root, whose controller is enabled.
func isOnAllKernels(file string) bool {
	switch file {
	case "memory.current", "memory.stat", "memory.max", "pids.current":
		return true
	}
	return false
}

// isBeingRemoved reports whether the kernel is removing the cgroup.
func (r *reader) isBeingRemoved() bool {
	if r.lostController == "" || r.entered == nil || r.dir == "" {
		return false
	}
	text, err := r.h.readFile(r.buf[:0], "", "cgroup.controllers")
	if err != nil {
		return isAbsent(err)
	}
	// during a removal, the files of a controller are missing while cgroup.controllers still names it
	controllers, err := cgroups.ParseControllers(text)
	return err == nil && slices.Contains(controllers, r.lostController)
}

// readError returns the first error of all reads. If the cgroup does not exist, it returns [fs.ErrNotExist].
func (r *reader) readError() error {
	if r.err == nil && (r.absent || r.isBeingRemoved()) {
		return fs.ErrNotExist
	}
	return r.err
}

// readInto parses a file of the cgroup into *into. It returns false if the file does not exist or is invalid.
func readInto[T any](reader *reader, file string, parse func([]byte) (T, error), into *T) bool {
	text, ok := reader.readFile(file)
	if !ok {
		return false
	}
	value, err := parse(text)
	if err != nil {
		reader.err = &fileError{file, err} // invalid
		return false
	}
	*into = value
	return true
}

// readLimit returns the limit in a file. It returns nil if the file does not exist or is invalid.
func (r *reader) readLimit(file string) *int64 {
	var n int64
	if !readInto(r, file, cgroups.ParseValue, &n) {
		return nil
	}
	return &n
}

// readPids reads the counters of PIDs that parts selects, and stores the values in stats. The files are the same on v1 and
// v2.
func (r *reader) readPids(parts cgroups.Parts, stats *cgroups.PidsStats) {
	if parts.Has(cgroups.PartPids) {
		readInto(r, "pids.current", cgroups.ParseCounter, &stats.Current)
	}
	if parts.Has(cgroups.PartPidsLimit) {
		stats.Max = r.readLimit("pids.max")
	}
	if parts.Has(cgroups.PartPidsEvents) {
		readInto(r, "pids.peak", cgroups.ParseCounter, &stats.Peak)
		readInto(r, "pids.events", cgroups.ParsePidsEvents, &stats.Refused)
	}
}

// readProcs stores the PIDs of the processes in the cgroup, but not in its descendants, in *into. In a threaded cgroup it
// stores thread IDs.
func (r *reader) readProcs(into *[]int) {
	if !readInto(r, "cgroup.procs", cgroups.ParsePIDs, into) {
		readInto(r, "cgroup.threads", cgroups.ParsePIDs, into)
	}
}

// readList returns the content of a file with a list of CPUs or memory nodes. It returns "" if there is no such file.
func (r *reader) readList(file string) string {
	text, _ := r.readFile(file)
	return strings.TrimSpace(string(text))
}

// readPressure returns the content of a pressure file. It returns nil if the kernel does not measure this pressure.
func (r *reader) readPressure(file string) *cgroups.Pressure {
	var p cgroups.Pressure
	if !readInto(r, file, cgroups.ParsePressure, &p) {
		return nil
	}
	return &p
}

// readHugetlbLimits returns the limits of huge pages, in bytes by page size. It reads the files hugetlb.SIZE+suffix, and
// omits sizes without a file.
func (r *reader) readHugetlbLimits(sizes []string, suffix string) map[string]int64 {
	var limits map[string]int64
	for _, size := range sizes {
		if n := r.readLimit("hugetlb." + size + suffix); n != nil {
			limits = setKey(limits, size, *n)
		}
	}
	return limits
}

// setKey sets a key of m, which it creates if it is nil.
func setKey[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// readMachineSwap reads file, which is /proc/meminfo. It stores the used swap of the machine, in bytes, in *into.
func (r *reader) readMachineSwap(file string, into *uint64) {
	var total, free uint64
	text, err := os.ReadFile(file)
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if n := map[string]*uint64{"SwapTotal": &total, "SwapFree": &free}[string(key)]; n != nil && err == nil {
			*n, err = strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 54)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // must not look like an absent cgroup
		err = fmt.Errorf("%w: there is no such file", errors.ErrUnsupported)
	}
	if err != nil && r.err == nil {
		r.err = &fileError{file, err}
	}
	*into = (total - min(total, free)) << 10
}
