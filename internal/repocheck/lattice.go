// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"strconv"
	"strings"
)

// CheckImports complains about every import that the policy does not grant, and once about every package that the
// policy does not know. It reads the imports from the files, whatever system they are built for. Nested modules are
// their own masters.
func (p *Policy) CheckImports(t *Tree) (found []Complaint) {
	unknown := map[string]bool{}
	for f := range t.source(func(f *File) bool { return !f.Nested }) {
		g, ok := p.lookup(f.Dir())
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

// checkImport checks one import of a file whose package has the grant g.
func (p *Policy) checkImport(t *Tree, f *File, spec *ast.ImportSpec, g grant) (Complaint, bool) {
	full, err := strconv.Unquote(spec.Path.Value)
	if err != nil { // the parser has seen to that
		return Complaint{}, false
	}
	name, own := t.local(full)
	granted := covers(g.words, name)
	if f.Test() {
		granted = granted || own && related(f.Dir(), name) || covers(p.tests[""], name) || covers(p.tests[f.Dir()], name)
	}
	switch {
	case covers(p.ban, full):
		return t.at(f, spec.Pos(), "imports %s, which nothing may", full), true
	case granted:
		return Complaint{}, false
	case !own && standard(full) && (f.Test() || !covers(p.named, full)):
		return Complaint{}, false
	}
	return t.at(f, spec.Pos(), "imports %s, which the policy does not grant to %s", name, f.Dir()), true
}

// local returns the path of a package from the top of the repository, and whether it belongs to it.
func (t *Tree) local(importPath string) (name string, own bool) {
	if importPath == t.Module {
		return ".", true
	}
	name, own = strings.CutPrefix(importPath, t.Module+"/")
	return name, own
}

// related reports whether one of two packages of the repository is the other or contains it.
func related(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// standard reports whether an import path is one of the standard library, whose first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
