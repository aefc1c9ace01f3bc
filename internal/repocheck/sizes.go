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

// Sizes limits the number of lines of files. [ParseSizes] reads it from a text of these lines:
//
//	file:      LINES          limit of a file that is not a test
//	test file: LINES          limit of a test file
//	PATH LINES: REASON        exception: a file that may be longer
//
// Text after "#" is a comment. An exception that is not needed is a violation. Packages have no limit.
type Sizes struct {
	limits     map[string]int // by kind
	exceptions map[string]int // by path of a file
}

// sizeKinds are the kinds of files with a limit.
var sizeKinds = []string{"file", "test file"} //nolint:gochecknoglobals // only read

// ParseSizes parses the text of a [Sizes]. An error contains the number of the invalid line.
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

// parseLine adds one line to the limits or exceptions. The line must not be empty or a comment.
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

// Check reports each file with more lines than its limit. It also reports each exception that is not needed, because the
// file is within the general limit.
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
	for f := range t.goFiles(func(*File) bool { return true }) {
		lines := strings.Count(f.Text, "\n")
		if f.IsTest() {
			check(f.Path, "test file", lines)
			continue
		}
		check(f.Path, "file", lines)
	}
	for _, path := range slices.Sorted(maps.Keys(s.exceptions)) {
		if !needed[path] {
			found = append(found, Complaint{Path: path, Text: "needs no exception of its size any more"})
		}
	}
	return found
}
