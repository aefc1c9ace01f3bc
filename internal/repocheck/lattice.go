// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"strconv"
	"strings"
)

// CheckImports reports each import that the policy does not grant, and each package for which the policy has no line. It checks
// the files for all operating systems. Nested modules are skipped.
func (p *Policy) CheckImports(t *Tree) (found []Complaint) {
	unknown := map[string]bool{}
	for f := range t.goFiles(func(f *File) bool { return !f.Nested }) {
		g, ok := p.findGrant(f.Dir())
		if !ok {
			if !unknown[f.Dir()] {
				unknown[f.Dir()] = true
				found = append(found, Complaint{Path: f.Dir(), Text: "is not in the import policy: add a line for it to deps_test.go"})
			}
			continue
		}
		for _, spec := range f.Go.Imports {
			if c, bad := p.checkImport(t, f, spec, g); bad {
				found = append(found, c)
			}
		}
	}
	return found
}

// checkImport checks the import spec of the file f. g is the grant for the package of f. The bool is true if the import is
// forbidden, and the Complaint is valid only then.
func (p *Policy) checkImport(t *Tree, f *File, spec *ast.ImportSpec, g grant) (Complaint, bool) {
	full, err := strconv.Unquote(spec.Path.Value)
	if err != nil { // the parser has checked the syntax
		return Complaint{}, false
	}
	name, own := t.localPath(full)
	granted := matchesAny(g.words, name)
	if f.IsTest() {
		granted = granted || own && isRelated(f.Dir(), name) || matchesAny(p.tests[""], name) || matchesAny(p.tests[f.Dir()], name)
	}
	switch {
	case matchesAny(p.ban, full):
		return t.complaintAt(f, spec.Pos(), "imports %s, which nothing may", full), true
	case granted:
		return Complaint{}, false
	case !own && isStandard(full) && (f.IsTest() || !matchesAny(p.named, full)):
		return Complaint{}, false
	}
	return t.complaintAt(f, spec.Pos(), "imports %s, which the policy does not grant to %s", name, f.Dir()), true
}

// localPath returns importPath relative to the module of t, and true for own. For a package of another module, own is false.
func (t *Tree) localPath(importPath string) (name string, own bool) {
	if importPath == t.Module {
		return ".", true
	}
	name, own = strings.CutPrefix(importPath, t.Module+"/")
	return name, own
}

// isRelated reports whether a and b are the same directory, or one is below the other.
func isRelated(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// isStandard reports whether importPath is a package of the standard library: its first element contains no dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
