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

// Rules returns all rules that need no configuration. For each rule, testdata/NAME.txtar has examples of violations and of
// permitted code.
func Rules() []Rule {
	return []Rule{
		{"parse", func(t *Tree) []Complaint { return t.parseErrors }},
		{"header", checkHeaders},
		{"names", checkVagueNames},
		{"paths", checkMachinePaths},
		{"packagecomment", checkPackageComments},
		{"testkits", checkTestKits},
		{"exporteddocs", checkExportedDocs},
		{"optiondocs", checkOptionDocs},
		{"init", checkInitFunctions},
		{"globals", checkGlobals},
		{"contexts", checkContexts},
		{"logkeys", checkLogKeys},
		{"quantities", checkQuantities},
		{"constructors", checkConstructors},
		{"differences", checkDifferences},
	}
}

// The licence header of Go files, and of shell scripts after the interpreter line.
const (
	goHeader    = "// SPDX-FileCopyrightText: The nodeagent Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"
	shellHeader = "# SPDX-FileCopyrightText: The nodeagent Authors\n# SPDX-License-Identifier: Apache-2.0\n"
)

// checkHeaders reports each file, even with a syntax error, without the licence header.
func checkHeaders(t *Tree) (found []Complaint) {
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

// vagueName matches file and package names without a meaning.
var vagueName = regexp.MustCompile(`^(utils?|helpers?|common|misc|types|base|managers?)$`)

// checkVagueNames reports each package and file with a name that does not describe its content, such as util.
func checkVagueNames(t *Tree) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		if !strings.HasSuffix(f.Path, ".go") {
			continue
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		if vagueName.MatchString(stem) || vagueName.MatchString(path.Base(f.Dir())) {
			found = append(found, Complaint{Path: f.Path, Text: "is named after nothing in particular"})
		}
	}
	return found
}

// machinePath matches an absolute path in a directory that exists on some machines only.
var machinePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=:(])/(?:home|Users|work|mnt|farm)/[\\w.-]+")

// checkMachinePaths reports paths in the text of files that exist only on some machines, such as home directories.
func checkMachinePaths(t *Tree) (found []Complaint) {
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
