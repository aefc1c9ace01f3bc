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

// reader reads files of one cgroup into one buffer and keeps the first error. A file that is not there, because its
// controller is not, leaves its value at zero; only when all is read it shows whether the cgroup itself is absent.
type reader struct {
	h       *hierarchy
	dir     string
	entered *hierarchy // h is own, a handle on dir in this one; nil: it is not
	own     hierarchy
	read    bool // a file was there
	buf     []byte
	absent  bool
	lost    string // a controller whose file is not there; empty: none
	err     error
}

func newReader(dir string) *reader { return &reader{dir: dir, buf: make([]byte, 0, 4096)} }

// reader returns a reader, perhaps one that somebody else has released. A summary needs some hundred of them every few seconds.
func (s *shared) reader(dir string) *reader {
	r, ok := s.readers.Get().(*reader)
	if !ok {
		return newReader(dir)
	}
	*r = reader{dir: dir, buf: r.buf}
	return r
}

// release takes back a reader, which is not used any more, unless its buffer has grown: there are few such files.
func (s *shared) release(r *reader) {
	r.leave()
	if cap(r.buf) <= 16<<10 {
		s.readers.Put(r)
	}
}

// in goes on in another hierarchy, which may be nil.
func (r *reader) in(h *hierarchy) *reader {
	r.leave()
	r.h = h
	return r
}

// at goes on in another hierarchy, which may be nil or the same, from a handle on the cgroup: for more files than one.
// Where the cgroup is absent, no file is there.
func (r *reader) at(h *hierarchy) *reader {
	if h != nil && r.entered == h {
		return r
	}
	r.in(h)
	if h == nil || r.err != nil {
		return r
	}
	fd, err := h.open(r.dir, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case absent(err):
		r.h, r.absent = nil, true
	case err != nil:
		r.err = err
	default:
		r.own = hierarchy{dir: h.dir, fd: fd}
		r.h, r.entered = &r.own, h
	}
	return r
}

// leave closes the handle on the cgroup, if there is one.
func (r *reader) leave() {
	if r.entered != nil {
		unix.Close(r.own.fd)
		r.h, r.entered = nil, nil
	}
}

// load returns the content of a file, which is valid until the next call.
func (r *reader) load(file string) (text []byte, ok bool) {
	if r.err != nil || r.h == nil {
		return nil, false
	}
	dir := r.dir
	if r.entered != nil {
		dir = ""
	}
	text, err := r.h.read(r.buf[:0], dir, file)
	switch {
	case absent(err):
		r.absent = r.absent || !cmp.Or(r.entered, r.h).exists(r.dir)
		if always(file) {
			r.lost, _, _ = strings.Cut(file, ".")
		}
		return nil, false
	case errors.Is(err, unix.EOPNOTSUPP): // such as pressure that is switched off
		return nil, false
	case err != nil:
		r.err = &fileError{file, err}
		return nil, false
	}
	r.buf, r.read = text, true
	return text, true
}

// always reports whether each kernel has a file where it has the controller, except at the top of the tree.
func always(file string) bool {
	switch file {
	case "memory.current", "memory.stat", "memory.max", "pids.current":
		return true
	}
	return false
}

// removed reports whether a cgroup is on its way out. The kernel takes the files of controllers away first, and then it
// is still said to have them.
func (r *reader) removed() bool {
	if r.lost == "" || r.entered == nil || r.dir == "" {
		return false
	}
	text, err := r.h.read(r.buf[:0], "", "cgroup.controllers")
	if err != nil {
		return absent(err)
	}
	controllers, err := cgroups.ParseControllers(text)
	return err == nil && slices.Contains(controllers, r.lost)
}

// done returns the first error.
func (r *reader) done() error {
	if r.err == nil && (r.absent || r.removed()) {
		return fs.ErrNotExist
	}
	return r.err
}

// get parses a file. It reports whether there is one.
func get[T any](r *reader, file string, parse func([]byte) (T, error), into *T) bool {
	text, ok := r.load(file)
	if !ok {
		return false
	}
	value, err := parse(text)
	if err != nil {
		r.err = &fileError{file, err}
		return false
	}
	*into = value
	return true
}

// limit parses a file with one limit, nil where there is none.
func (r *reader) limit(file string) *int64 {
	var n int64
	if !get(r, file, cgroups.ParseValue, &n) {
		return nil
	}
	return &n
}

// pids reads what both versions count of tasks.
func (r *reader) pids(parts cgroups.Parts, p *cgroups.PidsStats) {
	if parts.Has(cgroups.PartPids) {
		get(r, "pids.current", cgroups.ParseCounter, &p.Current)
	}
	if parts.Has(cgroups.PartPidsLimit) {
		p.Max = r.limit("pids.max")
	}
	if parts.Has(cgroups.PartPidsEvents) {
		get(r, "pids.peak", cgroups.ParseCounter, &p.Peak)
		get(r, "pids.events", cgroups.ParsePidsEvents, &p.Refused)
	}
}

// procs parses the processes of this very cgroup, or its threads where it is a threaded one.
func (r *reader) procs(into *[]int) {
	if !get(r, "cgroup.procs", cgroups.ParsePIDs, into) {
		get(r, "cgroup.threads", cgroups.ParsePIDs, into)
	}
}

// list returns a file with a list of CPUs or memory nodes, empty where there is none.
func (r *reader) list(file string) string {
	text, _ := r.load(file)
	return strings.TrimSpace(string(text))
}

// pressure parses a file of stalls, nil where the kernel does not measure them.
func (r *reader) pressure(file string) *cgroups.Pressure {
	var p cgroups.Pressure
	if !get(r, file, cgroups.ParsePressure, &p) {
		return nil
	}
	return &p
}

// hugetlb returns the limits on huge pages, by the size of a page.
func (r *reader) hugetlb(sizes []string, suffix string) map[string]int64 {
	var limits map[string]int64
	for _, size := range sizes {
		if n := r.limit("hugetlb." + size + suffix); n != nil {
			limits = with(limits, size, *n)
		}
	}
	return limits
}

// with sets a key of a map, which may be nil.
func with[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// machineSwap reads how many bytes of swap the machine uses from /proc/meminfo, which counts them in KiB.
func (r *reader) machineSwap(file string, into *uint64) {
	var total, free uint64
	text, err := os.ReadFile(file)
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if n := map[string]*uint64{"SwapTotal": &total, "SwapFree": &free}[string(key)]; n != nil && err == nil {
			*n, err = strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 54)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // which would say that the cgroup is absent
		err = fmt.Errorf("%w: there is no such file", errors.ErrUnsupported)
	}
	if err != nil && r.err == nil {
		r.err = &fileError{file, err}
	}
	*into = (total - min(total, free)) << 10
}
