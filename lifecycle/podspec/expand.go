// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
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

	pointer = 8       // bytes
	maxPath = 4 << 10 // bytes of a path with the terminating zero: PATH_MAX
)

// Expand replaces each $(NAME) in s by what env returns for NAME. A reference that env does not know stays as it is,
// $$ stands for one $, and a $ before anything else, an unclosed "$(" included, is an ordinary character
// (third_party/forked/golang/expansion). The result is an argument: it is an error if it is larger than [MaxArgument],
// and no more than that is allocated.
func Expand(s string, env func(name string) (value string, ok bool)) (string, error) {
	expanded, ok := expand(s, MaxArgument-1, env)
	if !ok {
		return "", fmt.Errorf("may not be more than %d bytes once it is expanded", MaxArgument-1)
	}
	return expanded, nil
}

// ExpandCommand expands the words of a command that is at path, each as [Expand] does, and together no larger than
// [MaxArguments]. The error is a *field.Error. An empty command becomes nil.
func ExpandCommand(command []string, path *field.Path, env func(name string) (value string, ok bool)) ([]string, error) {
	r := room(MaxArguments)
	return r.expand(command, path, env)
}

// room is how many bytes of arguments and variables a process can still be given.
type room int

func (r *room) expand(words []string, path *field.Path, env func(string) (string, bool)) ([]string, error) {
	var expanded []string
	for i, word := range words {
		arg, ok := expand(word, MaxArgument-1, env)
		if !ok {
			return nil, tooLong(path.Index(i), "may not be more than %d bytes once it is expanded", MaxArgument-1)
		}
		if !r.take(len(arg)) {
			return nil, tooLong(path.Index(i), "arguments and environment may not be more than %d bytes in all", MaxArguments)
		}
		expanded = append(expanded, arg)
	}
	return expanded, nil
}

// take reports whether there is room for a string of n bytes.
func (r *room) take(n int) bool {
	*r -= room(n + 1 + pointer)
	return *r >= 0
}

func tooLong(path *field.Path, format string, args ...any) *field.Error {
	err := field.TooLong(path, nil, 0)
	err.Detail = fmt.Sprintf(format, args...)
	return err
}

// expand is Expand with a limit in bytes. It reports whether the result is within the limit.
func expand(s string, limit int, env func(name string) (value string, ok bool)) (string, bool) {
	if strings.IndexByte(s, '$') < 0 {
		return s, len(s) <= limit
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
	return b.text.String(), !b.over
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
