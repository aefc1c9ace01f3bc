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

// tableFile is the mount table of the thread that opens it.
const tableFile = "/proc/thread-self/mountinfo"

// Limits of a mount table. A kernel has at most 100,000 mounts by default (fs.mount-max).
const (
	maxTable = 256 << 20
	maxLine  = 1 << 20
)

// Info is one entry of the mount table; see proc_pid_mountinfo(5).
type Info struct {
	ID, Parent   int
	Dev          string   // major:minor
	Root         string   // mounted directory of the file system
	Point        string   // mount point
	Options      string   // options of the mount, such as "ro,nosuid"
	Propagation  []string // propagation types, such as "shared:5"; none: private
	Type         string   // type of the file system, such as "tmpfs"
	Source       string
	SuperOptions string // options of the file system, such as "rw,size=65536k"
}

// IsShared reports whether new mounts below m propagate to the other mounts of its peer group.
func (m *Info) IsShared() bool {
	return slices.ContainsFunc(m.Propagation, func(s string) bool { return strings.HasPrefix(s, "shared:") })
}

// ReadTable returns all mounts of the mount namespace in the order of the kernel: of two mounts with the same mount point,
// the later one covers the earlier one. It is too slow to be called for each volume.
func ReadTable() ([]Info, error) {
	f, err := os.Open(tableFile)
	if err != nil {
		return nil, wrapError("read", tableFile, unwrapPathError(err))
	}
	defer f.Close()
	table, err := ParseTable(f)
	return table, wrapError("read", tableFile, err)
}

// unwrapPathError returns the cause of err if err is an *os.PathError, and err itself otherwise.
func unwrapPathError(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// ParseTable parses a mount table in the format of proc_pid_mountinfo(5). An error names the number of the invalid line.
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

// errInvalidLine is the error of a line that is not an entry of the mount table.
var errInvalidLine = errors.New("not an entry of the mount table")

// parseLine parses one line of the mount table. The fields are separated by single spaces, and some may be empty.
func parseLine(line string) (m Info, err error) {
	left, right, ok := strings.Cut(line, " - ")
	if !ok {
		return m, errInvalidLine
	}
	fields, rest := strings.SplitN(left, " ", 7), strings.SplitN(right, " ", 3)
	if len(fields) < 6 || len(rest) < 3 {
		return m, errInvalidLine
	}
	if m.ID, err = strconv.Atoi(fields[0]); err != nil {
		return m, errInvalidLine
	}
	if m.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return m, errInvalidLine
	}
	m.Dev, m.Root, m.Point, m.Options = fields[2], unescapeField(fields[3]), unescapeField(fields[4]), fields[5]
	if len(fields) == 7 {
		m.Propagation = strings.Fields(fields[6])
	}
	m.Type, m.Source, m.SuperOptions = rest[0], unescapeField(rest[1]), rest[2]
	return m, nil
}

// unescapeField replaces the kernel's octal escapes in s, a backslash and three digits, by their characters.
func unescapeField(s string) string {
	at := strings.IndexByte(s, '\\')
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0; at = strings.IndexByte(s, '\\') {
		b.WriteString(s[:at])
		s = s[at:]
		if c, ok := parseOctal(s); ok {
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

// parseOctal returns the byte for the octal escape at the start of s: a backslash and three digits.
func parseOctal(s string) (byte, bool) {
	if len(s) < 4 {
		return 0, false
	}
	c, err := strconv.ParseUint(s[1:4], 8, 8)
	return byte(c), err == nil
}

// MountsBelow returns the mounts of table at and below path in the order for unmounting: deeper mount points first, and the
// topmost of several mounts at one point. path must be clean and contain no symbolic links.
func MountsBelow(table []Info, path string) []Info {
	var found []Info
	for _, m := range slices.Backward(table) {
		if isWithin(m.Point, path) {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b Info) int {
		return cmp.Compare(strings.Count(b.Point, "/"), strings.Count(a.Point, "/"))
	})
	return found
}

// isWithin reports whether path is dir or below dir.
func isWithin(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// OtherMounts returns the mounts in table that show the directory mounted at path, or a part of it, outside of path. Of
// several mounts at path, the topmost counts.
func OtherMounts(table []Info, path string) (others []Info) {
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
		if table[i].Dev == table[at].Dev && isWithin(table[i].Root, table[at].Root) && !isWithin(table[i].Point, path) {
			others = append(others, table[i])
		}
	}
	return others
}
