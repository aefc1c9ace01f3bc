// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"fmt"
	"strings"
)

// Error says what is refused, and where it is.
type Error struct {
	Line int    // in the document, from 1; zero: not known
	Path string // such as spec.containers[0].name; empty: the document, or not known
	Err  error  // what it is, without anything of the document that could be secret
}

// Error returns "line N: path: cause".
func (e *Error) Error() string {
	var s strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&s, "line %d: ", e.Line)
	}
	if e.Path != "" {
		s.WriteString(e.Path + ": ")
	}
	return s.String() + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// step is one part of a path: a key, or an index where the key is nil.
type step struct {
	key   []byte
	index int
}

// maxPath is how much of a path an error quotes, in bytes.
const maxPath = 500

// pathOf writes a path in the way of Kubernetes: a.b[0].c, and a[b.c] for keys with dots.
func pathOf(steps []step) string {
	var s strings.Builder
	for _, step := range steps {
		switch key := string(step.key); {
		case step.key == nil:
			fmt.Fprintf(&s, "[%d]", step.index)
		case strings.ContainsAny(key, ".[]"):
			s.WriteString("[" + key + "]")
		default:
			if s.Len() > 0 {
				s.WriteByte('.')
			}
			s.WriteString(key)
		}
		if s.Len() > maxPath {
			return s.String()[:maxPath] + "..."
		}
	}
	return s.String()
}
