// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// Update is all that a source wants to run, and all that is wrong with it.
type Update struct {
	// PodSet has the pods of all manifests, by file name and then by position. They are shared and must not be changed. Its
	// source is [File] or [URL]; an agent that has two of a kind changes it. It is incomplete as long as some manifest has not
	// been read without error since the start: a pod that runs on the node and that no source has named may be meant to run.
	lifecycle.PodSet
	// Errs are the errors that hold now, by file name and then by line. They stay until they are fixed.
	Errs []*Error
}

func (u Update) equal(other Update) bool {
	return u.Incomplete == other.Incomplete && slices.Equal(u.Pods, other.Pods) &&
		slices.EqualFunc(u.Errs, other.Errs, func(a, b *Error) bool { return a.Error() == b.Error() })
}

// Error is one thing that is wrong with a manifest.
type Error struct {
	File  string // path or URL
	Line  int    // in the file, from 1; zero where it has no line, such as for a file that cannot be opened
	Field string // such as spec.containers[0].image; may be empty
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
