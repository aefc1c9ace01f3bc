// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON checks a document against what is left of the budget.
func (b *Budget) JSON(raw []byte) error {
	if !json.Valid(raw) { // which says what is wrong with it
		return json.Unmarshal(raw, new(json.RawMessage))
	}
	s := scanner{data: raw, enter: func(s *scanner) error {
		b.values--
		if n := len(s.path); n > 0 && s.path[n-1].key == nil && s.next() == '{' {
			b.values -= inList
		}
		switch {
		case b.values < 0:
			return b.tooMany()
		case len(s.path) >= MaxDepth && (s.next() == '{' || s.next() == '['):
			return fmt.Errorf("more than %d lists and objects within each other", MaxDepth)
		case len(s.path) == 0:
			return nil
		}
		last := s.path[len(s.path)-1]
		switch {
		case len(last.key) > MaxKey:
			s.path = s.path[:len(s.path)-1]
			return checkLength("key", len(last.key), MaxKey)
		case last.key == nil && last.index >= MaxList:
			s.path = s.path[:len(s.path)-1]
			return fmt.Errorf("a list of more than %d elements", MaxList)
		}
		return nil
	}, scalar: func(_ *scanner, text []byte) error {
		if text[0] == '"' {
			return checkLength("string", len(text), MaxString)
		}
		return checkLength("number", len(text), MaxNumber)
	}}
	return s.scan()
}

// checkLength returns an error for what is too long.
func checkLength(what string, n, most int) error {
	if n > most {
		return fmt.Errorf("a %s of %d bytes, the limit is %d", what, n, most)
	}
	return nil
}

// scanner walks valid JSON without making anything of it.
type scanner struct {
	data   []byte
	at     int
	path   []step                       // of the value
	enter  func(*scanner) error         // before each value; may be nil
	scalar func(*scanner, []byte) error // for each scalar, as it is written
}

// errEnd says that valid JSON was not.
var errEnd = errors.New("unexpected end of JSON")

func (s *scanner) scan() error {
	if err := s.value(); err != nil {
		return &Error{Path: pathOf(s.path), Err: err}
	}
	return nil
}

// next skips blanks and returns the character at which they end, or zero at the end.
func (s *scanner) next() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// value walks the value that comes next. It leaves the path as it is when there is an error.
func (s *scanner) value() error {
	if s.enter != nil {
		if err := s.enter(s); err != nil {
			return err
		}
	}
	switch s.next() {
	case 0:
		return errEnd
	case '{', '[':
		return s.children(s.data[s.at] == '{')
	case '"':
		return s.scalar(s, s.text())
	}
	end := bytes.IndexAny(s.data[s.at:], " \t\r\n,]}")
	if end < 0 {
		end = len(s.data) - s.at
	}
	text := s.data[s.at : s.at+end]
	s.at += end
	return s.scalar(s, text)
}

// children walks the elements of a list or the values of an object.
func (s *scanner) children(keyed bool) error {
	s.at++
	for i := 0; ; i++ {
		c := s.next()
		if c == ',' {
			s.at++
			c = s.next()
		}
		switch c {
		case 0:
			return errEnd
		case '}', ']':
			s.at++
			return nil
		}
		child := step{index: i}
		if keyed {
			child.key = unquote(s.text())
			s.next()
			s.at++ // the colon
		}
		s.path = append(s.path, child)
		if err := s.value(); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
}

// text returns the string that comes next, with its quotes.
func (s *scanner) text() []byte {
	begin := s.at
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return s.data[begin:s.at]
		}
	}
	return s.data[begin:]
}

// unquote returns what a string says, and anything else as it is.
func unquote(text []byte) []byte {
	if text[0] != '"' {
		return text
	}
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var s string
	if json.Unmarshal(text, &s) != nil {
		return text
	}
	return []byte(s)
}
