// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"strconv"
	"strings"
)

// CheckImports reports each import that the policy does not grant, and each package without a line in the policy. It checks
// the files for all operating systems, but skips nested modules.
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

// checkImport returns a complaint and true if the policy forbids an import in the file f, whose package has the grant g.
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

// localPath returns importPath relative to the module of t. own is false, and the path is unchanged, if the package belongs
// to another module.
func (t *Tree) localPath(importPath string) (name string, own bool) {
	if importPath == t.Module {
		return ".", true
	}
	name, own = strings.CutPrefix(importPath, t.Module+"/")
	return name, own
}

// isRelated reports whether the directories a and b are equal, or one contains the other.
func isRelated(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// isStandard reports whether the package importPath belongs to the standard library. The first element of such a path
// contains no dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
