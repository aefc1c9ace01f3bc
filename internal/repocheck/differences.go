// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

const (
	// differencesFile is where a package lists all that sets it apart from what it is modelled on.
	differencesFile = "DIFFERENCES.md"
	// maxDifferences is how many of them the package comment may have: those that a user must act on.
	maxDifferences = 5
	// conformanceDir is where the tests are that pin them.
	conformanceDir = "conformance"
)

var (
	// differsHeading begins the section of a package comment about them.
	differsHeading = regexp.MustCompile(`^# .*([Dd]iffers from|[Dd]ifferences)`)
	// listItem is an item of a list in a package comment.
	listItem = regexp.MustCompile(`^\s+- `)
	// pinned is the end of a line of a list of differences.
	pinned = regexp.MustCompile(`\((?:conformance: ([^()/]+)(?:/([^()]+))?|no conformance case: \S.*)\)$`)
)

// differences wants the package comment to list no more differences than a user has to act on, and all others to be in
// the file beside it, one line each, with the conformance case that pins it or the reason why none does. Each difference
// that package conformance names is in one of these files.
func differences(t *Tree) (found []Complaint) {
	comments := map[string]*File{} // by directory: the file with the package comment
	sources := map[string]bool{}   // directories that hold a package
	for f := range t.source(func(f *File) bool { return !f.Test() }) {
		sources[f.Dir()] = true
		if f.Go.Doc.Text() != "" {
			comments[f.Dir()] = f
		}
	}
	cases, listed, named := t.conformanceCases(), map[string]bool{}, map[string]bool{}
	for i := range t.Files {
		f := &t.Files[i]
		if path.Base(f.Path) != differencesFile {
			continue
		}
		listed[f.Dir()] = true
		if !sources[f.Dir()] {
			found = append(found, Complaint{Path: f.Path, Text: "lists the differences of no package"})
		}
		found = append(found, unpinned(f, cases, named)...)
	}
	found = append(found, t.unnamed(named)...)
	for f := range t.source(func(f *File) bool { return comments[f.Dir()] == f }) {
		n := countDifferences(f.Go.Doc.Text())
		if n > maxDifferences {
			found = append(found, t.at(f, f.Go.Package, "package comment lists %d differences, not at most %d; the others go to %s", n, maxDifferences, differencesFile))
		}
		if listed[f.Dir()] && !strings.Contains(f.Go.Doc.Text(), differencesFile) {
			found = append(found, t.at(f, f.Go.Package, "package comment does not name %s", differencesFile))
		}
	}
	return found
}

// unpinned returns the lines of a list of differences that do not end as they have to, and notes the cases that are named.
func unpinned(f *File, cases, named map[string]bool) (found []Complaint) {
	number := 0
	for line := range strings.Lines(f.Text) {
		number++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		end := pinned.FindStringSubmatch(line)
		if end == nil {
			found = append(found, Complaint{f.Path, number, `does not end with "(conformance: Test/case)" or "(no conformance case: reason)"`})
			continue
		}
		test, name := end[1], end[2]
		named[underscored(name)] = true
		if test != "" && !cases[test] {
			found = append(found, Complaint{f.Path, number, fmt.Sprintf("%s has no test %s", conformanceDir, test)})
		}
		if name != "" && !cases["/"+underscored(name)] {
			found = append(found, Complaint{f.Path, number, fmt.Sprintf("%s has no case %q", conformanceDir, name)})
		}
	}
	return found
}

// unnamed returns the differences that package conformance names and no list does: the values with a name and a reason.
func (t *Tree) unnamed(named map[string]bool) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return f.Test() && f.Dir() == conformanceDir }) {
		ast.Inspect(f.Go, func(n ast.Node) bool {
			list, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			name, ok := literalField(list, "Name")
			if _, exception := literalField(list, "Reason"); ok && exception && !named[underscored(name)] {
				found = append(found, t.at(f, list.Pos(), "%q is in no %s", name, differencesFile))
			}
			return true
		})
	}
	return found
}

// literalField returns the string that a composite literal gives a field.
func literalField(list *ast.CompositeLit, field string) (text string, ok bool) {
	for _, element := range list.Elts {
		pair, isPair := element.(*ast.KeyValueExpr)
		if !isPair {
			continue
		}
		key, isName := pair.Key.(*ast.Ident)
		if value := stringLiteral(pair.Value); isName && key.Name == field && value != nil {
			text, err := strconv.Unquote(value.Value)
			return text, err == nil
		}
	}
	return "", false
}

// conformanceCases returns the names of the tests in package conformance, and behind a slash those of their cases: every
// string in the code of the tests may be one.
func (t *Tree) conformanceCases() map[string]bool {
	cases := map[string]bool{}
	for f := range t.source(func(f *File) bool { return f.Test() && f.Dir() == conformanceDir }) {
		ast.Inspect(f.Go, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				cases[n.Name.Name] = n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test")
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					cases["/"+underscored(text)] = true
				}
			}
			return true
		})
	}
	return cases
}

// underscored writes the name of a case as the go command does.
func underscored(name string) string { return strings.ReplaceAll(name, " ", "_") }

// countDifferences returns how many items the section of a package comment has that says what differs.
func countDifferences(doc string) (n int) {
	section := false
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, "# "):
			section = differsHeading.MatchString(line)
		case section && listItem.MatchString(line):
			n++
		}
	}
	return n
}
