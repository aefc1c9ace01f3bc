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
	// differencesFile is the file in which a package lists all differences from the program that it models.
	differencesFile = "DIFFERENCES.md"
	// maxDifferences is the largest number of differences in a package comment: those that a user must act on.
	maxDifferences = 5
	// conformanceDir is the directory of the tests that prove the differences.
	conformanceDir = "conformance"
)

var (
	// differsHeading matches the heading of the section with differences in a package comment.
	differsHeading = regexp.MustCompile(`^# .*([Dd]iffers from|[Dd]ifferences)`)
	// listItem matches an item of a list in a package comment.
	listItem = regexp.MustCompile(`^\s+- `)
	// pinned matches the end of a list item: a conformance case, or the reason why there is none.
	pinned = regexp.MustCompile(`\((?:conformance: ([^()/]+)(?:/([^()]+))?|no conformance case: \S.*)\)$`)
)

// checkDifferences checks that each documented difference from Kubernetes names a conformance case, and vice versa.
func checkDifferences(t *Tree) (found []Complaint) {
	comments := map[string]*File{} // by directory: the file with the package comment
	sources := map[string]bool{}   // directories of packages
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
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
		found = append(found, checkDifferencesFile(f, cases, named)...)
	}
	found = append(found, t.checkConformanceNames(named)...)
	for f := range t.goFiles(func(f *File) bool { return comments[f.Dir()] == f }) {
		// A package comment may list few differences, and a differences file all.
		n := countDifferences(f.Go.Doc.Text())
		if n > maxDifferences {
			found = append(found, t.complaintAt(f, f.Go.Package, "package comment lists %d differences, not at most %d; the others go to %s", n, maxDifferences, differencesFile))
		}
		if listed[f.Dir()] && !strings.Contains(f.Go.Doc.Text(), differencesFile) {
			found = append(found, t.complaintAt(f, f.Go.Package, "package comment does not name %s", differencesFile))
		}
	}
	return found
}

// checkDifferencesFile returns the complaints about a differences file, and adds the conformance cases in it to named.
func checkDifferencesFile(f *File, cases, named map[string]bool) (found []Complaint) {
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
		named[goCaseName(name)] = true
		if test != "" && !cases[test] {
			found = append(found, Complaint{f.Path, number, fmt.Sprintf("%s has no test %s", conformanceDir, test)})
		}
		if name != "" && !cases["/"+goCaseName(name)] {
			found = append(found, Complaint{f.Path, number, fmt.Sprintf("%s has no case %q", conformanceDir, name)})
		}
	}
	return found
}

// checkConformanceNames reports each difference that package conformance permits, but that is not in named.
func (t *Tree) checkConformanceNames(named map[string]bool) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return f.IsTest() && f.Dir() == conformanceDir }) {
		ast.Inspect(f.Go, func(n ast.Node) bool {
			list, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			// A permitted difference is a composite literal with the fields Name and Reason.
			name, ok := literalField(list, "Name")
			if _, exception := literalField(list, "Reason"); ok && exception && !named[goCaseName(name)] {
				found = append(found, t.complaintAt(f, list.Pos(), "%q is in no %s", name, differencesFile))
			}
			return true
		})
	}
	return found
}

// literalField returns the value of a field in a composite literal. ok is false unless it is a string literal.
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

// conformanceCases returns the names of the conformance tests, and each string in them, with "/" in front, as a possible
// subtest.
func (t *Tree) conformanceCases() map[string]bool {
	cases := map[string]bool{}
	for f := range t.goFiles(func(f *File) bool { return f.IsTest() && f.Dir() == conformanceDir }) {
		ast.Inspect(f.Go, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				cases[n.Name.Name] = n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test")
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					cases["/"+goCaseName(text)] = true
				}
			}
			return true
		})
	}
	return cases
}

// goCaseName returns name in the form in which the go command prints the name of a subtest, with underscores for spaces.
func goCaseName(name string) string { return strings.ReplaceAll(name, " ", "_") }

// countDifferences returns the number of list items in the section about differences of the package comment doc.
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
