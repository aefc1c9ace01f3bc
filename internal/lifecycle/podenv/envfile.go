// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEnvFileLine is the longest line of a file of variables, which is what the kubelet's scanner takes.
const maxEnvFileLine = 64<<10 - 1

// ParseEnvFile returns the value of a variable in a file of variables: lines such as NAME='value', in which the quotes
// are required and everything between them, line ends too, stands for itself (KEP-3721; pkg/kubelet/util/env). Blank
// lines and comments are skipped. A variable with blanks after the equals sign is empty, and so is one that is not
// there. The first one of the name counts; what comes after it is not looked at.
func ParseEnvFile(data []byte, key string) (string, error) {
	return parseEnvFile(data, map[string]bool{key: true}).value(key)
}

// envFileValues is what a file of variables has for those that are looked for.
type envFileValues struct {
	found map[string]string
	err   error // of the first line that cannot be read; what comes after it is not known
}

func (v envFileValues) value(key string) (string, error) {
	if value, ok := v.found[key]; ok {
		return value, nil
	}
	return "", v.err
}

// parseEnvFile reads a file once for all variables that are taken from it.
func parseEnvFile(data []byte, keys map[string]bool) envFileValues {
	p := envFile{rest: string(data)}
	found := make(map[string]string, len(keys))
	for len(found) < len(keys) {
		v, err := p.variable()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return envFileValues{found, err}
		}
		if _, again := found[v.name]; keys[v.name] && !again {
			found[v.name] = v.value
		}
	}
	return envFileValues{found: found}
}

// envFile is a file of variables while it is read.
type envFile struct {
	rest string
	line int // number of the last one
}

func (p *envFile) error(what string) error { return fmt.Errorf("line %d: %s", p.line, what) }

// next returns the next line without its end, or [io.EOF].
func (p *envFile) next() (line string, err error) {
	if p.rest == "" {
		return "", io.EOF
	}
	p.line++
	line, p.rest, _ = strings.Cut(p.rest, "\n")
	if len(line) > maxEnvFileLine {
		return "", p.error(fmt.Sprintf("more than %d bytes", maxEnvFileLine))
	}
	return strings.TrimSuffix(line, "\r"), nil
}

// envFileVariable is a variable of a file.
type envFileVariable struct{ name, value string }

// variable returns the next variable, or [io.EOF].
func (p *envFile) variable() (v envFileVariable, err error) {
	line := ""
	for line == "" || line[0] == '#' {
		if line, err = p.next(); err != nil {
			return v, err
		}
		line = strings.TrimLeft(line, " \t")
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return v, p.error("no equals sign")
	case name == "":
		return v, p.error("no name")
	case strings.TrimRight(name, " \t") != name:
		return v, p.error("blanks before the equals sign")
	case strings.TrimLeft(value, " \t") != value:
		return envFileVariable{name: name}, nil
	}
	value, err = p.quoted(value)
	return envFileVariable{name: name, value: value}, err
}

// quoted returns what is between the quotes of a value, which begins with the first of them and may go on for lines.
func (p *envFile) quoted(s string) (string, error) {
	first := p.line
	s, quoted := strings.CutPrefix(s, "'")
	if !quoted {
		return "", p.error("no single quote around the value")
	}
	var b strings.Builder
	for {
		before, after, closed := strings.Cut(s, "'")
		if closed {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", p.error("more after the closing quote")
			}
			if b.Len() == 0 {
				return before, nil // which is a part of the file, as most are
			}
		}
		b.WriteString(before)
		if closed {
			return b.String(), nil
		}
		b.WriteByte('\n')
		var err error
		if s, err = p.next(); errors.Is(err, io.EOF) {
			return "", fmt.Errorf("line %d: no closing quote", first)
		} else if err != nil {
			return "", err
		}
	}
}
