// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// reader reads files of one cgroup into one buffer and keeps the first error. A file that is not there, because its
// controller is not, leaves its value at zero; only when all is read it shows whether the cgroup itself is absent.
type reader struct {
	h      *hierarchy
	dir    string
	buf    []byte
	absent bool
	err    error
}

func newReader(dir string) *reader { return &reader{dir: dir, buf: make([]byte, 0, 4096)} }

// in goes on in another hierarchy, which may be nil.
func (r *reader) in(h *hierarchy) *reader {
	r.h = h
	return r
}

// load returns the content of a file, which is valid until the next call.
func (r *reader) load(file string) (text []byte, ok bool) {
	if r.err != nil || r.h == nil {
		return nil, false
	}
	text, err := r.h.read(r.buf[:0], r.dir, file)
	switch {
	case absent(err):
		r.absent = r.absent || !r.h.exists(r.dir)
		return nil, false
	case errors.Is(err, unix.EOPNOTSUPP): // such as pressure that is switched off
		return nil, false
	case err != nil:
		r.err = &fileError{file, err}
		return nil, false
	}
	r.buf = text
	return text, true
}

// done returns the first error.
func (r *reader) done() error {
	if r.err == nil && r.absent {
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
