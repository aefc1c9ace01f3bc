// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON reduces the budget by the values of a JSON document. It returns an error if raw is not valid JSON, exceeds the
// budget, or exceeds another limit, such as the maximum nesting depth.
func (b *Budget) JSON(raw []byte) error {
	if !json.Valid(raw) { // the error of Unmarshal has the position
		return json.Unmarshal(raw, new(json.RawMessage))
	}
	s := scanner{data: raw, enter: func(s *scanner) error {
		b.values--
		if n := len(s.path); n > 0 && s.path[n-1].key == nil && s.peekByte() == '{' {
			b.values -= listElementCost
		}
		switch {
		case b.values < 0:
			return b.tooManyValues()
		case len(s.path) >= MaxDepth && (s.peekByte() == '{' || s.peekByte() == '['):
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
	return s.scanDocument()
}

// checkLength returns an error if length is greater than limit. Both are in bytes. kind is a word for the error text, such
// as "string".
func checkLength(kind string, length, limit int) error {
	if length > limit {
		return fmt.Errorf("a %s of %d bytes, the limit is %d", kind, length, limit)
	}
	return nil
}

// scanner visits the values of valid JSON without decoding them.
type scanner struct {
	data   []byte
	at     int
	path   []step                       // path of the current value
	enter  func(*scanner) error         // called before each value; may be nil
	scalar func(*scanner, []byte) error // called for each scalar with its JSON text
}

// errEnd is returned for JSON that ends within a value.
var errEnd = errors.New("unexpected end of JSON")

// scanDocument scans all values of the document. An error contains the path of its value.
func (s *scanner) scanDocument() error {
	if err := s.scanValue(); err != nil {
		return &Error{Path: formatPath(s.path), Err: err}
	}
	return nil
}

// peekByte skips white space and returns the next byte, which remains unread. It returns zero at the end of the document.
func (s *scanner) peekByte() byte {
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

// scanValue scans the next value with its children, and calls the hooks of s. After an error, s.path is the path of its
// value.
func (s *scanner) scanValue() error {
	if s.enter != nil {
		if err := s.enter(s); err != nil {
			return err
		}
	}
	switch s.peekByte() {
	case 0:
		return errEnd
	case '{', '[':
		return s.scanChildren(s.data[s.at] == '{')
	case '"':
		return s.scalar(s, s.scanString())
	}
	end := bytes.IndexAny(s.data[s.at:], " \t\r\n,]}")
	if end < 0 {
		end = len(s.data) - s.at
	}
	text := s.data[s.at : s.at+end]
	s.at += end
	return s.scalar(s, text)
}

// scanChildren scans the values in a list or object up to its closing bracket. keyed is true for an object.
func (s *scanner) scanChildren(keyed bool) error {
	s.at++
	for i := 0; ; i++ {
		c := s.peekByte()
		if c == ',' {
			s.at++
			c = s.peekByte()
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
			child.key = unquoteString(s.scanString())
			s.peekByte()
			s.at++ // the colon
		}
		s.path = append(s.path, child)
		if err := s.scanValue(); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
}

// scanString reads the next string, and returns it with its quotes.
func (s *scanner) scanString() []byte {
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

// unquoteString returns the content of text if text is a JSON string. Otherwise it returns text itself.
func unquoteString(text []byte) []byte {
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
