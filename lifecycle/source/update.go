// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// Update has all pods of a [Dir] or [HTTP], and all errors of their manifests.
type Update struct {
	// PodSet has the pods of all manifests, by file name and position. They are shared and must not be modified. Its source is
	// [File] or [URL]. It is incomplete while a manifest was never valid since the start: running pods that no source lists must
	// not be stopped.
	lifecycle.PodSet
	// Errs are the errors that the manifests have now, by file name and line.
	Errs []*Error
}

func (u Update) isEqual(other Update) bool {
	return u.Incomplete == other.Incomplete && slices.Equal(u.Pods, other.Pods) &&
		slices.EqualFunc(u.Errs, other.Errs, func(a, b *Error) bool { return a.Error() == b.Error() })
}

// Error is an error of one manifest, with its position.
type Error struct {
	File  string // path or URL
	Line  int    // line in the file, from 1; zero: the error has no line, for example if the file cannot be read
	Field string // path of the field, such as spec.containers[0].image; may be empty
	Err   error
}

// Error returns "file:line: field: cause".
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s = fmt.Sprintf("%s:%d", s, e.Line)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
