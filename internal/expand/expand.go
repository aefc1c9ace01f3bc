// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package expand replaces references such as $(NAME) in the commands, arguments and variables of a pod. It limits the results to
// the size that Linux accepts for a process. It does not know the sources of variables; the caller passes a [Lookup].
package expand

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
)

// The limits of execve(2): Linux starts no process with larger arguments and environment. Variables that refer to other variables
// can grow exponentially, so expansion stops at these limits.
const (
	// MaxArgument is the maximum size of an argument, or of a variable as NAME=value, in bytes with the terminating zero:
	// MAX_ARG_STRLEN with pages of 4 KiB.
	MaxArgument = 128 << 10
	// MaxArguments is the maximum size of all arguments and variables, each with its terminating zero and a pointer of 8 bytes: a
	// quarter of the usual stack of 8 MiB. A variable that is set twice counts twice.
	MaxArguments = 2 << 20

	pointerSize = 8 // bytes
)

// Lookup returns the value of a variable. ok is false if it does not exist.
type Lookup func(name string) (value string, ok bool)

// Command returns command with each $(NAME) replaced as in [String], nil for an empty command. An expanded word of
// [MaxArgument] bytes or more, or words of more than [MaxArguments] bytes together, are an error about the field at path.
func Command(command []string, path *field.Path, lookup Lookup) ([]string, error) {
	r := Room(MaxArguments)
	return r.Expand(command, path, lookup)
}

// Room is the number of bytes that further arguments and variables of a process may use. Its initial value is [MaxArguments].
type Room int

// Expand expands words like [Command], and reduces r by the size of the result. It returns an error if the result is
// larger than r.
func (r *Room) Expand(words []string, path *field.Path, lookup Lookup) ([]string, error) {
	var expanded []string
	for i, word := range words {
		arg, ok := String(word, MaxArgument-1, lookup)
		if !ok {
			return nil, fielderr.TooLong(path.Index(i), "may not be more than %d bytes once it is expanded", MaxArgument-1)
		}
		if !r.Reserve(len(arg)) {
			return nil, fielderr.TooLong(path.Index(i), "arguments and environment may not be more than %d bytes in all", MaxArguments)
		}
		expanded = append(expanded, arg)
	}
	return expanded, nil
}

// Reserve reduces r by the size that a string of n bytes has for execve(2): n, a terminating zero and a pointer. It
// returns false if r was too small.
func (r *Room) Reserve(n int) bool {
	*r -= Room(n + 1 + pointerSize)
	return *r >= 0
}

// String replaces each reference $(NAME) in text by the value that lookup returns for NAME. References to unknown variables
// stay. $$ becomes $, and every other $ stays. String stops and returns false when the result gets longer than limit bytes.
// Source: third_party/forked/golang/expansion.
func String(text string, limit int, lookup Lookup) (string, bool) {
	if strings.IndexByte(text, '$') < 0 {
		if len(text) > limit {
			return "", false
		}
		return text, true
	}
	b := boundedBuilder{limit: limit}
	closed := strings.LastIndexByte(text, ')') // index of the end of the last reference in text
	for !b.exceeded {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			break
		}
		b.writeString(text[:i])
		used := i + 2
		switch ref := text[i:]; ref[1] {
		case '$':
			b.writeString("$")
		case '(':
			if closed < i {
				b.writeString("$(")
				break
			}
			name, _, _ := strings.Cut(ref[2:], ")")
			used += len(name) + 1
			if value, ok := lookup(name); ok {
				b.writeString(value)
			} else {
				b.writeString(ref[:len(name)+3])
			}
		default:
			// The character after the $ is copied with it. It is no $, so its remaining bytes are copied with the following text.
			b.writeString(ref[:2])
		}
		text, closed = text[used:], closed-used
	}
	b.writeString(text)
	if b.exceeded {
		return "", false
	}
	return b.text.String(), true
}

// boundedBuilder builds a string of at most limit bytes.
type boundedBuilder struct {
	text     strings.Builder
	limit    int
	exceeded bool
}

// writeString appends text to b. If the text of b would become longer than b.limit, it appends nothing and sets b.exceeded.
func (b *boundedBuilder) writeString(text string) {
	b.exceeded = b.exceeded || len(text) > b.limit-b.text.Len()
	if !b.exceeded {
		b.text.WriteString(text)
	}
}
