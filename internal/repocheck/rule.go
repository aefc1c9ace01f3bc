// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Rule is one rule of the repository.
type Rule struct {
	Name  string
	Check func(*Tree) []Complaint
}

// Rules returns the rules that need no configuration. Each has an archive testdata/NAME.txtar with violations of it
// and, beside them, what it must let pass.
func Rules() []Rule {
	return []Rule{
		{"parse", func(t *Tree) []Complaint { return t.broken }},
		{"header", headers},
		{"names", vagueNames},
		{"paths", machinePaths},
		{"packagecomment", packageComments},
		{"testkits", testKits},
		{"exporteddocs", exportedDocs},
		{"optiondocs", optionDocs},
		{"init", initFunctions},
		{"globals", globals},
		{"contexts", detachedContexts},
		{"logkeys", logKeys},
		{"quantities", quantities},
		{"constructors", startingConstructors},
		{"differences", differences},
	}
}

// The lines that a file begins with, in Go and, behind the interpreter line, in shell.
const (
	goHeader    = "// SPDX-FileCopyrightText: The nodeagent Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"
	shellHeader = "# SPDX-FileCopyrightText: The nodeagent Authors\n# SPDX-License-Identifier: Apache-2.0\n"
)

// headers wants the licence header. It looks at the text, so that files which do not parse are covered too.
func headers(t *Tree) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		first, rest, _ := strings.Cut(f.Text, "\n")
		shell := strings.HasSuffix(f.Path, ".sh") || strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "sh")
		switch {
		case strings.HasSuffix(f.Path, ".go") && !strings.HasPrefix(f.Text, goHeader):
			found = append(found, Complaint{f.Path, 1, "does not begin with the two SPDX lines and a blank line"})
		case shell && !strings.HasPrefix(rest, shellHeader):
			found = append(found, Complaint{f.Path, 1, "has no SPDX lines below the interpreter line"})
		}
	}
	return found
}

// vague are names that any code would fit under.
var vague = regexp.MustCompile(`^(utils?|helpers?|common|misc|types|base|managers?)$`)

// vagueNames wants packages and files to be named after what they hold.
func vagueNames(t *Tree) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		if !strings.HasSuffix(f.Path, ".go") {
			continue
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		if vague.MatchString(stem) || vague.MatchString(path.Base(f.Dir())) {
			found = append(found, Complaint{Path: f.Path, Text: "is named after nothing in particular"})
		}
	}
	return found
}

// machinePath matches an absolute path below a directory where people and build machines keep their own files.
var machinePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=:(])/(?:home|Users|work|mnt|farm)/[\\w.-]+")

// machinePaths wants files to make sense on any machine.
func machinePaths(t *Tree) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		if slices.Contains(strings.Split(f.Path, "/"), "testdata") {
			continue
		}
		for _, at := range machinePath.FindAllStringIndex(f.Text, -1) {
			where := f.Text[at[0]:at[1]]
			line := 1 + strings.Count(f.Text[:at[0]+strings.Index(where, "/")], "\n")
			found = append(found, Complaint{f.Path, line, "names " + strings.TrimLeft(where, " \t\r\n\"'`=:(")})
		}
	}
	return found
}
