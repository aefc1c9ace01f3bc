// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"strings"
)

// Request describes one subPath mount.
type Request struct {
	// Volume is the path of the volume on the host. It may contain symbolic links.
	Volume string
	// SubPath is the path relative to the volume, without "..".
	SubPath string
	// Target is the path of the bind mount, in a directory that only the agent can write to. Missing parents are created.
	Target string
}

// Reasons for which Prepare refuses a subPath; a retry does not help.
var (
	// ErrInvalid means that a subPath is empty, absolute, too long, or contains "..".
	ErrInvalid = errors.New("is invalid")
	// ErrOutside means that a symbolic link leads out of the volume.
	ErrOutside = errors.New("leads out of the volume")
)

// Error is the error of Prepare for a subPath.
type Error struct {
	SubPath string
	Op      string // failed operation, such as "bind"; empty: the subPath was refused
	Err     error
}

// Error returns a text without paths of the host.
func (e *Error) Error() string {
	text := "subPath " + quotePath(e.SubPath) + ": "
	if e.Op != "" {
		text += e.Op + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Prepare bind-mounts the file or directory request.SubPath of a volume at request.Target, and returns the target path. It
// creates missing directories of the subPath. It keeps an existing bind mount of the same file, and detaches other mounts at the
// target.
func Prepare(ctx context.Context, request Request) (path string, err error) {
	if err := checkSubPath(request.SubPath); err != nil {
		return "", &Error{SubPath: request.SubPath, Err: err}
	}
	if err := bindSubPath(ctx, request); err != nil {
		return "", err
	}
	return request.Target, nil
}

// Clean unmounts and removes the targets that Prepare has created at path and below it, and their parent directories up to this
// path. It deletes no files of a mounted file system. It keeps a file that is not empty, and returns an error for it. If nothing
// exists at path, Clean returns nil.
func Clean(ctx context.Context, path string) error { return cleanTree(ctx, path) }

// Limits for a subPath.
const (
	maxPath  = 4096 // bytes of a subPath
	maxQuote = 100  // bytes of a subPath in an error
)

// checkSubPath returns an error that wraps [ErrInvalid] if the subPath is empty, absolute or too long, or contains "..".
func checkSubPath(path string) error {
	invalid := func(text string) error { return &invalidError{text} }
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

// invalidError wraps ErrInvalid and has its own text.
type invalidError struct{ text string }

func (r *invalidError) Error() string   { return r.text }
func (r *invalidError) Is(e error) bool { return e == ErrInvalid }

// quotePath returns a shortened, quoted path for errors.
func quotePath(path string) string {
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
