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

// Policy defines which package may import which packages. The standard library is permitted; other imports are granted line
// by line. [ParsePolicy] reads it from a text of these lines:
//
//	GROUP = PATTERN...              a name for some patterns
//	ban: PATTERN...                 imports that are forbidden to all packages
//	named: PATTERN...               packages of the standard library that must be granted
//	tests: WORD...                  additional imports of the tests of every package
//	tests PACKAGE...: WORD...       additional imports of the tests of these packages
//	PACKAGE... [max N]: WORD...     imports of these packages, and the largest number of third-party packages in their closure
//
// A PACKAGE is a path relative to the repository, such as cri/remote, or "." for the root. A PATTERN is the path of a package of
// this repository or another; with "/..." at its end it also matches all packages below. A WORD is a group, a pattern, or "any".
// The line with the longest matching pattern applies to a package. Text after "#" is a comment.
//
// The tests of a package may import the imports of the package, the packages above and below it, and the grants of the tests lines.
type Policy struct {
	groups     map[string][]string
	ban, named []string
	grants     map[string]grant    // by pattern
	tests      map[string][]string // by package; those of all packages under ""
}

// grant is the imports and the dependency budget of the packages that a pattern matches.
type grant struct {
	words []string
	max   int // largest number of third-party packages in the closure; negative: no limit
}

// pattern matches a valid package path of a policy.
var pattern = regexp.MustCompile(`^(\.|C|[a-z0-9][\w.-]*(/[\w.-]+)*)$`)

// ParsePolicy parses the text of a [Policy]. An error contains the number of the invalid line.
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

// parseLine adds one line to the policy. The line must not be empty or a comment.
func (p *Policy) parseLine(line string) error {
	if name, patterns, ok := strings.Cut(line, "="); ok {
		words, err := p.expandGroups(patterns)
		p.groups[strings.TrimSpace(name)] = words
		return err
	}
	left, right, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("%q is neither a group nor a grant", strings.TrimSpace(line))
	}
	words, err := p.expandGroups(right)
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

// parseGrant adds a grant to the policy: each of the packages may import the packages in words. packages may end with max
// and N, the maximum number of third-party dependencies.
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

// expandGroups returns the patterns in text. It replaces the name of a group by the patterns of the group. Any other word
// must be a pattern itself.
func (p *Policy) expandGroups(text string) (patterns []string, err error) {
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

// findGrant returns the grant for a directory with the longest matching pattern.
func (p *Policy) findGrant(dir string) (granted grant, ok bool) {
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

// matchesAny reports whether at least one pattern matches the package path name.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		below, wide := strings.CutSuffix(p, "/...")
		return p == "any" || p == name || wide && (name == below || strings.HasPrefix(name, below+"/"))
	})
}
