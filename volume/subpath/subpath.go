// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"strings"
)

// Request is one subPath of one volume mount.
type Request struct {
	// Volume is where the volume is on the host. If it is a link, that is followed.
	Volume string
	// SubPath is the path in the volume, relative and without "..".
	SubPath string
	// Target is where the subPath is bound, in a directory that only the agent writes to. The directories that lead there
	// are made.
	Target string
}

// Reasons for which a subPath is refused. Neither goes away by itself.
var (
	// ErrInvalid says that a subPath is absolute, too long, or has an element that it must not have.
	ErrInvalid = errors.New("is invalid")
	// ErrOutside says that a link leads out of the volume.
	ErrOutside = errors.New("leads out of the volume")
)

// Error is why a subPath could not be prepared.
type Error struct {
	SubPath string
	Op      string // what could not be done with it, such as "bind"; empty: it was refused
	Err     error
}

// Error has no path of the host.
func (e *Error) Error() string {
	text := "subPath " + quoted(e.SubPath) + ": "
	if e.Op != "" {
		text += e.Op + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// Prepare binds a subPath to its target and returns the target. It makes the directories of the subPath that are missing.
// If the target is a bind of the same file or directory already, it stays; one of another is detached first.
func Prepare(ctx context.Context, r Request) (path string, err error) {
	if err := check(r.SubPath); err != nil {
		return "", &Error{SubPath: r.SubPath, Err: err}
	}
	if err := prepare(ctx, r); err != nil {
		return "", err
	}
	return r.Target, nil
}

// Clean unmounts and removes what Prepare has made at a path and below it: binds, the empty directories and files that
// they were on, and the directories that lead there. It never enters what is mounted. Anything else, such as a file with
// content, stays and is an error. An absent path is success.
func Clean(ctx context.Context, path string) error { return clean(ctx, path) }

// Limits of a subPath.
const (
	maxPath  = 4096 // bytes
	maxQuote = 100  // bytes of it in an error
)

// check reports why a subPath is refused before anything is opened.
func check(path string) error {
	invalid := func(text string) error { return &reason{text} }
	switch {
	case path == "":
		return invalid("must not be empty")
	case strings.HasPrefix(path, "/"):
		return invalid("must be relative")
	case len(path) > maxPath:
		return invalid("must not be longer than 4096 bytes")
	case strings.IndexByte(path, 0) >= 0:
		return invalid("must not contain a zero byte")
	}
	for element := range strings.SplitSeq(path, "/") {
		if element == ".." {
			return invalid("must not contain '..'")
		}
	}
	return nil
}

// reason is an ErrInvalid with words of its own.
type reason struct{ text string }

func (r *reason) Error() string   { return r.text }
func (r *reason) Is(e error) bool { return e == ErrInvalid }

// quoted returns a path for an error.
func quoted(path string) string {
	if len(path) > maxQuote {
		path = path[:maxQuote] + "..."
	}
	return "\"" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, path) + "\""
}
