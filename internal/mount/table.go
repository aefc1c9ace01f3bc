// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// tableFile is the table of the mounts of the thread that opens it.
const tableFile = "/proc/thread-self/mountinfo"

// Limits of a table. A kernel has 100,000 mounts at most, unless it is told otherwise (fs.mount-max).
const (
	maxTable = 256 << 20
	maxLine  = 1 << 20
)

// Info is one mount, as proc_pid_mountinfo(5) describes it.
type Info struct {
	ID, Parent   int
	Dev          string   // major:minor
	Root         string   // what of the file system is mounted
	Point        string   // where
	Options      string   // of the mount, such as "ro,nosuid"
	Propagation  []string // such as "shared:5"; none: private
	Type         string   // of the file system, such as "tmpfs"
	Source       string
	SuperOptions string // of the file system, such as "rw,size=65536k"
}

// Shared reports whether what is mounted below this mount appears in its peers.
func (m *Info) Shared() bool {
	return slices.ContainsFunc(m.Propagation, func(s string) bool { return strings.HasPrefix(s, "shared:") })
}

// Table reads all mounts of this mount namespace, in the order of the kernel: of two at the same point, the later one is
// on top. It costs what the host has mounted, so that it is for a start and not for each volume.
func Table() ([]Info, error) {
	f, err := os.Open(tableFile)
	if err != nil {
		return nil, failed("read", tableFile, unwrapped(err))
	}
	defer f.Close()
	table, err := ParseTable(f)
	return table, failed("read", tableFile, err)
}

// unwrapped returns the cause of an error of package os, which names a path.
func unwrapped(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// ParseTable reads a table in the format of proc_pid_mountinfo(5). An error names the line.
func ParseTable(r io.Reader) ([]Info, error) {
	limited := &io.LimitedReader{R: r, N: maxTable}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	var table []Info
	for lines.Scan() {
		m, err := parseLine(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(table)+1, err)
		}
		table = append(table, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(table)+1, err)
	}
	if limited.N <= 0 {
		return nil, fmt.Errorf("more than %d bytes", maxTable)
	}
	return table, nil
}

// errLine says that a line is no mount.
var errLine = errors.New("is no mount")

// parseLine reads one mount. Fields are apart by one blank, and may be empty.
func parseLine(line string) (m Info, err error) {
	left, right, ok := strings.Cut(line, " - ")
	if !ok {
		return m, errLine
	}
	fields, rest := strings.SplitN(left, " ", 7), strings.SplitN(right, " ", 3)
	if len(fields) < 6 || len(rest) < 3 {
		return m, errLine
	}
	if m.ID, err = strconv.Atoi(fields[0]); err != nil {
		return m, errLine
	}
	if m.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return m, errLine
	}
	m.Dev, m.Root, m.Point, m.Options = fields[2], unescape(fields[3]), unescape(fields[4]), fields[5]
	if len(fields) == 7 {
		m.Propagation = strings.Fields(fields[6])
	}
	m.Type, m.Source, m.SuperOptions = rest[0], unescape(rest[1]), rest[2]
	return m, nil
}

// unescape replaces what the kernel writes for blanks, tabs, ends of lines and backslashes: a backslash and three octal
// digits.
func unescape(s string) string {
	at := strings.IndexByte(s, '\\')
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0; at = strings.IndexByte(s, '\\') {
		b.WriteString(s[:at])
		s = s[at:]
		if c, ok := octal(s); ok {
			b.WriteByte(c)
			s = s[4:]
		} else {
			b.WriteByte('\\')
			s = s[1:]
		}
	}
	b.WriteString(s)
	return b.String()
}

// octal reads a backslash and three octal digits.
func octal(s string) (byte, bool) {
	if len(s) < 4 {
		return 0, false
	}
	c, err := strconv.ParseUint(s[1:4], 8, 8)
	return byte(c), err == nil
}

// Below returns what is mounted at a path and below it, in the order in which it can be unmounted: the deepest first, and
// of two at the same point the one on top. The path is clean and leads over no link.
func Below(table []Info, path string) []Info {
	var found []Info
	for _, m := range slices.Backward(table) {
		if within(m.Point, path) {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b Info) int {
		return cmp.Compare(strings.Count(b.Point, "/"), strings.Count(a.Point, "/"))
	})
	return found
}

// within reports whether a path is dir or below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// Others returns the mounts that show what is mounted on top at a path, or a part of it, and are neither there nor below it. Other
// directories of the same file system do not count.
func Others(table []Info, path string) (others []Info) {
	at := -1
	for i := range table {
		if table[i].Point == path {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	for i := range table {
		if table[i].Dev == table[at].Dev && within(table[i].Root, table[at].Root) && !within(table[i].Point, path) {
			others = append(others, table[i])
		}
	}
	return others
}
