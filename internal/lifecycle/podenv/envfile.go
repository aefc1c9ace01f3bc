// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEnvFileLine is the maximum length of a line, as in the kubelet's scanner.
const maxEnvFileLine = 64<<10 - 1

// ParseEnvFile returns the value of the variable key in an environment file (KEP-3721) with lines NAME='value', or "" if it
// is not defined. A value may contain line breaks. Errors after the definition have no effect. Source: pkg/kubelet/util/env.
func ParseEnvFile(data []byte, key string) (string, error) {
	return parseEnvFile(data, map[string]bool{key: true}).lookupValue(key)
}

// envFileValues holds the variables of an environment file that a container refers to.
type envFileValues struct {
	found map[string]string
	err   error // of the first invalid line; the lines after it were not parsed
}

func (v envFileValues) lookupValue(key string) (string, error) {
	if value, ok := v.found[key]; ok {
		return value, nil
	}
	return "", v.err
}

// parseEnvFile returns the values of the variables named in keys. data is the content of an environment file.
func parseEnvFile(data []byte, keys map[string]bool) envFileValues {
	p := envFile{rest: string(data)}
	found := make(map[string]string, len(keys))
	for len(found) < len(keys) {
		v, err := p.nextVariable()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return envFileValues{found, err}
		}
		if _, duplicate := found[v.name]; keys[v.name] && !duplicate {
			found[v.name] = v.value
		}
	}
	return envFileValues{found: found}
}

// envFile is the state of the parser of an environment file.
type envFile struct {
	rest string // not parsed yet
	line int    // number of the current line
}

func (p *envFile) lineError(problem string) error { return fmt.Errorf("line %d: %s", p.line, problem) }

// nextLine returns the next line without its line break. At the end of the file it returns [io.EOF].
func (p *envFile) nextLine() (line string, err error) {
	if p.rest == "" {
		return "", io.EOF
	}
	p.line++
	line, p.rest, _ = strings.Cut(p.rest, "\n")
	if len(line) > maxEnvFileLine {
		return "", p.lineError(fmt.Sprintf("more than %d bytes", maxEnvFileLine))
	}
	return strings.TrimSuffix(line, "\r"), nil
}

// envFileVariable is one variable of an environment file: a line NAME='value'.
type envFileVariable struct{ name, value string }

// nextVariable parses the next variable of the file. At the end of the file it returns [io.EOF]. Any other error contains
// the line number.
func (p *envFile) nextVariable() (v envFileVariable, err error) {
	line := ""
	for line == "" || line[0] == '#' {
		if line, err = p.nextLine(); err != nil {
			return v, err
		}
		line = strings.TrimLeft(line, " \t")
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return v, p.lineError("no equals sign")
	case name == "":
		return v, p.lineError("no name")
	case strings.TrimRight(name, " \t") != name:
		return v, p.lineError("blanks before the equals sign")
	case strings.TrimLeft(value, " \t") != value:
		return envFileVariable{name: name}, nil
	}
	value, err = p.readQuoted(value)
	return envFileVariable{name: name, value: value}, err
}

// readQuoted returns the single-quoted value that starts s, without the quotes. The value may continue on the next lines.
func (p *envFile) readQuoted(s string) (string, error) {
	first := p.line
	s, quoted := strings.CutPrefix(s, "'")
	if !quoted {
		return "", p.lineError("no single quote around the value")
	}
	var b strings.Builder
	for {
		before, after, closed := strings.Cut(s, "'")
		if closed {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", p.lineError("more after the closing quote")
			}
			if b.Len() == 0 {
				return before, nil // a substring of the file, without copying
			}
		}
		b.WriteString(before)
		if closed {
			return b.String(), nil
		}
		b.WriteByte('\n')
		var err error
		if s, err = p.nextLine(); errors.Is(err, io.EOF) {
			return "", fmt.Errorf("line %d: no closing quote", first)
		} else if err != nil {
			return "", err
		}
	}
}
