// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package expand replaces references such as $(NAME) in commands, arguments and other text of a pod, in bounds of what
// Linux lets a process have. It does not know where variables come from.
package expand

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
)

// What a process can be given when it is started (execve(2)): Linux refuses more, so that no container could run with
// it. References to variables that refer to variables grow without bound, and are cut off here while they grow.
const (
	// MaxArgument is the size of an argument, or of a variable as NAME=value, in bytes with the terminating zero:
	// MAX_ARG_STRLEN where pages have 4 KiB.
	MaxArgument = 128 << 10
	// MaxArguments is the size of all arguments and variables, each with its terminating zero and its pointer of 8
	// bytes: a quarter of the usual stack of 8 MiB. A variable that is set twice counts twice.
	MaxArguments = 2 << 20

	pointer = 8 // bytes
)

// Lookup returns the value of a variable, if there is one of that name.
type Lookup func(name string) (value string, ok bool)

// Command expands the words of a command that is at path, each as [String] does to an argument of less than
// [MaxArgument], and together no larger than [MaxArguments]. The error is a *field.Error. An empty command becomes nil.
func Command(command []string, path *field.Path, env Lookup) ([]string, error) {
	r := Room(MaxArguments)
	return r.Expand(command, path, env)
}

// Room is how many bytes of arguments and variables a process can still be given. It begins as [MaxArguments].
type Room int

// Expand is [Command] for words that go into the room beside others.
func (r *Room) Expand(words []string, path *field.Path, env Lookup) ([]string, error) {
	var expanded []string
	for i, word := range words {
		arg, ok := String(word, MaxArgument-1, env)
		if !ok {
			return nil, fielderr.TooLong(path.Index(i), "may not be more than %d bytes once it is expanded", MaxArgument-1)
		}
		if !r.Take(len(arg)) {
			return nil, fielderr.TooLong(path.Index(i), "arguments and environment may not be more than %d bytes in all", MaxArguments)
		}
		expanded = append(expanded, arg)
	}
	return expanded, nil
}

// Take reports whether there is room for a string of n bytes, and takes it.
func (r *Room) Take(n int) bool {
	*r -= Room(n + 1 + pointer)
	return *r >= 0
}

// String replaces each $(NAME) in s by what env returns for NAME. A reference that env does not know stays as it is,
// $$ stands for one $, and a $ before anything else, an unclosed "$(" included, is an ordinary character
// (third_party/forked/golang/expansion). It reports whether the result has at most limit bytes; without,
// there is no result, and no more than that was allocated.
func String(s string, limit int, env Lookup) (string, bool) {
	if strings.IndexByte(s, '$') < 0 {
		if len(s) > limit {
			return "", false
		}
		return s, true
	}
	b := bounded{limit: limit}
	closed := strings.LastIndexByte(s, ')') // of the last reference, counted from the start of s
	for !b.over {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			break
		}
		b.write(s[:i])
		used := i + 2
		switch ref := s[i:]; ref[1] {
		case '$':
			b.write("$")
		case '(':
			if closed < i {
				b.write("$(")
				break
			}
			name, _, _ := strings.Cut(ref[2:], ")")
			used += len(name) + 1
			if value, ok := env(name); ok {
				b.write(value)
			} else {
				b.write(ref[:len(name)+3])
			}
		default:
			// The character after the $ is written with it. It cannot be a $, so it does not matter where it ends.
			b.write(ref[:2])
		}
		s, closed = s[used:], closed-used
	}
	b.write(s)
	if b.over {
		return "", false
	}
	return b.text.String(), true
}

// bounded is a string that is put together, up to a limit in bytes.
type bounded struct {
	text  strings.Builder
	limit int
	over  bool
}

func (b *bounded) write(s string) {
	b.over = b.over || len(s) > b.limit-b.text.Len()
	if !b.over {
		b.text.WriteString(s)
	}
}
