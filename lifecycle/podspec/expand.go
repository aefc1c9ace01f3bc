// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import "strings"

// Expand replaces each $(NAME) in s by what env returns for NAME. A reference that env does not know stays as it is,
// $$ stands for one $, and a $ before anything else, an unclosed "$(" included, is an ordinary character
// (third_party/forked/golang/expansion).
func Expand(s string, env func(name string) (value string, ok bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			break
		}
		b.WriteString(s[:i])
		ref := s[i:]
		switch ref[1] {
		case '$':
			b.WriteByte('$')
			s = ref[2:]
		case '(':
			name, rest, closed := strings.Cut(ref[2:], ")")
			if !closed {
				b.WriteString("$(")
				s = ref[2:]
				continue
			}
			if value, ok := env(name); ok {
				b.WriteString(value)
			} else {
				b.WriteString("$(" + name + ")")
			}
			s = rest
		default:
			// The character after the $ is written with it. It cannot be a $, so it does not matter where it ends.
			b.WriteString(ref[:2])
			s = ref[2:]
		}
	}
	b.WriteString(s)
	return b.String()
}
