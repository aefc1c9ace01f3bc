// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Sizes says how long packages and files may be at most, in lines. A text of these lines makes one ([ParseSizes]):
//
//	package:   LINES          all files of a directory that are not tests
//	file:      LINES          one of them
//	test file: LINES
//	PATH LINES: REASON        an exception: a directory or a file that may be longer
//
// What follows a "#" is a remark. An exception that is needed no longer is a complaint.
type Sizes struct {
	limits     map[string]int // by kind
	exceptions map[string]int // by path
}

// sizeKinds are the kinds of what has a size.
var sizeKinds = []string{"package", "file", "test file"} //nolint:gochecknoglobals // only read

// ParseSizes reads the text of sizes. An error names the line.
func ParseSizes(text string) (*Sizes, error) {
	s := &Sizes{limits: map[string]int{}, exceptions: map[string]int{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := s.parseLine(line); err != nil {
			return nil, fmt.Errorf("parse sizes: line %d: %w", number, err)
		}
	}
	for _, kind := range sizeKinds {
		if s.limits[kind] == 0 {
			return nil, fmt.Errorf("parse sizes: no line for %s", kind)
		}
	}
	return s, nil
}

// parseLine adds one line that is neither empty nor a remark.
func (s *Sizes) parseLine(line string) error {
	left, right, ok := strings.Cut(line, ":")
	left, right = strings.TrimSpace(left), strings.TrimSpace(right)
	if !ok || right == "" {
		return fmt.Errorf("%q is neither a limit nor an exception with a reason", strings.TrimSpace(line))
	}
	into, name, count := s.limits, left, right
	if !slices.Contains(sizeKinds, left) {
		words := strings.Fields(left)
		if len(words) != 2 {
			return errors.New("an exception is a path and a number of lines")
		}
		into, name, count = s.exceptions, words[0], words[1]
	}
	lines, err := strconv.Atoi(count)
	if err != nil || lines <= 0 {
		return fmt.Errorf("%q is not a number of lines", count)
	}
	into[name] = lines
	return nil
}

// Check complains about every package and file that is too long.
func (s *Sizes) Check(t *Tree) (found []Complaint) {
	needed := map[string]bool{}
	check := func(path, kind string, lines int) {
		limit := s.limits[kind]
		if lines <= limit {
			return
		}
		needed[path] = true
		if limit = max(limit, s.exceptions[path]); lines > limit {
			found = append(found, Complaint{Path: path, Text: fmt.Sprintf("%s of %d lines, not at most %d", kind, lines, limit)})
		}
	}
	packages := map[string]int{}
	for f := range t.source(func(*File) bool { return true }) {
		lines := strings.Count(f.Text, "\n")
		if f.Test() {
			check(f.Path, "test file", lines)
			continue
		}
		check(f.Path, "file", lines)
		packages[f.Dir()] += lines
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		check(dir, "package", packages[dir])
	}
	for _, path := range slices.Sorted(maps.Keys(s.exceptions)) {
		if !needed[path] {
			found = append(found, Complaint{Path: path, Text: "needs no exception of its size any more"})
		}
	}
	return found
}
