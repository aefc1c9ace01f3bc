// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"fmt"
	"strings"
)

// Error is the reason why a document is refused, with its position.
type Error struct {
	Line int    // line in the document, from 1; zero: unknown
	Path string // path of the field, such as spec.containers[0].name; empty: the whole document, or unknown
	Err  error  // the cause, without content that could be secret
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

// step is one element of a path: a key, or a list index if key is nil.
type step struct {
	key   []byte
	index int
}

// maxPath limits the length of a path in an error, in bytes.
const maxPath = 500

// formatPath returns the path in the notation of Kubernetes: a.b[0].c, or a[b.c] for a key with dots. A path longer than
// maxPath bytes is truncated.
func formatPath(steps []step) string {
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
