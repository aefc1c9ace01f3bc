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

// scanner parses the lines of a kernel file, similar to bufio.Scanner. After an error it stops, and err has the position. It
// allocates memory only for errors. The newline of the last line is optional.
type scanner struct {
	kind string // kind of file, for errors
	rest []byte
	line int // line number, from 1

	text       []byte // current line, set by nextLine
	key, value []byte // key and value of the current line, set by nextPair
	err        error
}

// nextLine reads the next line into s.text. It returns false at the end of the file and after an error.
func (s *scanner) nextLine() bool {
	if s.err != nil || len(s.rest) == 0 {
		return false
	}
	s.text, s.rest, _ = bytes.Cut(s.rest, []byte("\n"))
	s.line++
	return true
}

// nextPair reads the next line into s.key and s.value. It returns false at the end and after an error.
func (s *scanner) nextPair() bool {
	if !s.nextLine() {
		if s.line == 0 {
			s.err = errors.New(s.kind + ": empty") // an empty file
		}
		return false
	}
	var ok bool
	if s.key, s.value, ok = bytes.Cut(s.text, []byte(" ")); !ok {
		s.setError("no key and value", s.text)
	}
	return s.err == nil
}

// parseValue returns the number in the current line, which consists of a key and this number.
func (s *scanner) parseValue() uint64 { return s.parseNumber(s.value) }

// parseMicroseconds reads a number of microseconds from the current line, and returns it in nanoseconds.
func (s *scanner) parseMicroseconds() uint64 {
	const most = math.MaxUint64 / 1000
	return min(s.parseValue(), most) * 1000
}

// parseNumber parses a number in the current line. If text is no number, it sets s.err and returns zero.
func (s *scanner) parseNumber(text []byte) uint64 {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		s.setError("no number", text)
		return 0
	}
	return v
}

// setError ends the scan: it sets s.err to an error about a text in the current line. It keeps an earlier error.
func (s *scanner) setError(problem string, text []byte) {
	if s.err == nil {
		s.err = fmt.Errorf("%s line %d: %s: %s", s.kind, s.line, problem, quoteExcerpt(text))
	}
}

// quoteExcerpt returns the first 64 bytes of text in quotes, for an error.
func quoteExcerpt(text []byte) string {
	const most = 64
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}

// cutField splits text at the first space, into the field before it and the rest after it.
func cutField(text []byte) (field, rest []byte) {
	field, rest, _ = bytes.Cut(text, []byte(" "))
	return field, rest
}
