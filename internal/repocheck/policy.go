// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Policy says which package may import what. The standard library is open to all; everything else is granted, line
// by line. A text of these lines makes one ([ParsePolicy]):
//
//	GROUP = PATTERN...              a name for some patterns
//	ban: PATTERN...                 what nothing may import, whatever else is granted
//	named: PATTERN...               what must be granted although it is in the standard library
//	tests: WORD...                  what the tests of every package may import besides
//	tests PACKAGE...: WORD...       what the tests of these packages may import besides
//	PACKAGE... [max N]: WORD...     what these packages may import, and how many third-party packages may come along
//
// A package is a path from the top of the repository, such as cri/remote, or "." for the top. A pattern is the path
// of a package, of this repository or another; with "/..." at its end it also covers all packages below. A word is a
// group, a pattern, or "any". Of the lines that cover a package the longest pattern counts. What follows a "#" is a
// remark.
//
// The tests of a package may import what the package may, the packages above and below it, and what the tests lines
// grant.
type Policy struct {
	groups     map[string][]string
	ban, named []string
	grants     map[string]grant    // by pattern
	tests      map[string][]string // by package; those of all packages under ""
}

// grant is what the packages that a pattern covers may do.
type grant struct {
	words []string
	max   int // third-party packages in the closure; negative for no limit
}

// pattern is the form of a package or a pattern in a policy.
var pattern = regexp.MustCompile(`^(\.|C|[a-z0-9][\w.-]*(/[\w.-]+)*)$`)

// ParsePolicy reads the text of a policy. An error names the line.
func ParsePolicy(text string) (*Policy, error) {
	p := &Policy{groups: map[string][]string{}, grants: map[string]grant{}, tests: map[string][]string{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := p.parseLine(line); err != nil {
			return nil, fmt.Errorf("parse policy: line %d: %w", number, err)
		}
	}
	return p, nil
}

// parseLine adds one line that is neither empty nor a remark.
func (p *Policy) parseLine(line string) error {
	if name, patterns, ok := strings.Cut(line, "="); ok {
		words, err := p.expand(patterns)
		p.groups[strings.TrimSpace(name)] = words
		return err
	}
	left, right, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("%q is neither a group nor a grant", strings.TrimSpace(line))
	}
	words, err := p.expand(right)
	if err != nil {
		return err
	}
	switch packages := strings.Fields(left); {
	case len(packages) == 1 && packages[0] == "ban":
		p.ban = append(p.ban, words...)
	case len(packages) == 1 && packages[0] == "named":
		p.named = append(p.named, words...)
	case len(packages) == 1 && packages[0] == "tests":
		p.tests[""] = append(p.tests[""], words...)
	case len(packages) > 1 && packages[0] == "tests":
		for _, name := range packages[1:] {
			p.tests[name] = append(p.tests[name], words...)
		}
	default:
		return p.parseGrant(packages, words)
	}
	return nil
}

// parseGrant adds a line that grants words to packages.
func (p *Policy) parseGrant(packages, words []string) error {
	limit := -1
	if i := slices.Index(packages, "max"); i >= 0 {
		if i != len(packages)-2 {
			return errors.New("max wants one number before the colon")
		}
		n, err := strconv.Atoi(packages[i+1])
		if err != nil || n < 0 {
			return fmt.Errorf("max %q is not a number of packages", packages[i+1])
		}
		limit, packages = n, packages[:i]
	}
	for _, name := range packages {
		if !pattern.MatchString(name) {
			return fmt.Errorf("%q is not a package", name)
		}
		if _, twice := p.grants[name]; twice {
			return fmt.Errorf("package %s has a line already", name)
		}
		p.grants[name] = grant{words, limit}
	}
	return nil
}

// expand splits words and replaces the groups among them.
func (p *Policy) expand(text string) (patterns []string, err error) {
	for word := range strings.FieldsSeq(text) {
		group, ok := p.groups[word]
		switch {
		case ok:
			patterns = append(patterns, group...)
		case pattern.MatchString(word):
			patterns = append(patterns, word)
		default:
			return nil, fmt.Errorf("%q is neither a group above nor a package", word)
		}
	}
	return patterns, nil
}

// lookup returns what the package in a directory is granted.
func (p *Policy) lookup(dir string) (grant, bool) {
	if g, ok := p.grants[dir]; ok {
		return g, true
	}
	for above := dir; above != "."; above = path.Dir(above) {
		if g, ok := p.grants[above+"/..."]; ok {
			return g, true
		}
	}
	return grant{}, false
}

// covers reports whether one of the patterns covers a path.
func covers(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		below, wide := strings.CutSuffix(p, "/...")
		return p == "any" || p == name || wide && (name == below || strings.HasPrefix(name, below+"/"))
	})
}
