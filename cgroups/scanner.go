// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// scanner walks over the lines of a file of the kernel, in the manner of bufio.Scanner: after an error it stops, and
// err says where. It allocates only for errors. A last line without its newline counts.
type scanner struct {
	kind string // of file, for errors
	rest []byte
	line int // from 1

	text       []byte // the line, after nextLine
	key, value []byte // the two halves of the line, after next
	err        error
}

// nextLine moves to the next line.
func (s *scanner) nextLine() bool {
	if s.err != nil || len(s.rest) == 0 {
		return false
	}
	s.text, s.rest, _ = bytes.Cut(s.rest, []byte("\n"))
	s.line++
	return true
}

// next moves to the next line of a file whose lines are "key value". Such a file is never empty.
func (s *scanner) next() bool {
	if !s.nextLine() {
		if s.line == 0 {
			s.err = errors.New(s.kind + ": empty")
		}
		return false
	}
	var ok bool
	if s.key, s.value, ok = bytes.Cut(s.text, []byte(" ")); !ok {
		s.fail("no key and value", s.text)
	}
	return s.err == nil
}

// number returns the value of the line.
func (s *scanner) number() uint64 { return s.parse(s.value) }

// micros returns the value of the line, which is in microseconds, in nanoseconds.
func (s *scanner) micros() uint64 {
	const most = math.MaxUint64 / 1000
	return min(s.number(), most) * 1000
}

// parse returns the number in a part of the line.
func (s *scanner) parse(text []byte) uint64 {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		s.fail("no number", text)
		return 0
	}
	return v
}

// fail stops the scanner, unless it has stopped already.
func (s *scanner) fail(what string, text []byte) {
	if s.err == nil {
		s.err = fmt.Errorf("%s line %d: %s: %s", s.kind, s.line, what, excerpt(text))
	}
}

// excerpt quotes what a file holds, and no more of it than a log should.
func excerpt(text []byte) string {
	const most = 64
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}

// cut returns the text up to the first space, and what follows.
func cut(text []byte) (field, rest []byte) {
	field, rest, _ = bytes.Cut(text, []byte(" "))
	return field, rest
}
