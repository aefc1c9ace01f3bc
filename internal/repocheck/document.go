// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// checkPackageComments reports each package without a package comment, and each package with several. It also reports
// comments that do not begin with "Package NAME".
func checkPackageComments(t *Tree) (found []Complaint) {
	carriers := map[string][]string{}
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
		files := carriers[f.Dir()]
		if f.Go.Doc.Text() != "" {
			files = append(files, f.Path)
		}
		carriers[f.Dir()] = files
		if text := f.Go.Doc.Text(); text != "" && !f.IsMain() && !strings.HasPrefix(text, "Package "+f.Go.Name.Name+" ") {
			found = append(found, t.complaintAt(f, f.Go.Package, "package comment does not begin with \"Package %s\"", f.Go.Name.Name))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(carriers)) {
		switch files := carriers[dir]; {
		case len(files) == 0:
			found = append(found, Complaint{Path: dir, Text: "no file carries a package comment"})
		case len(files) > 1:
			found = append(found, Complaint{Path: dir, Text: "package comment in " + strings.Join(files, " and ")})
		}
	}
	return found
}

// checkExportedDocs reports exported types, functions, methods, constants and variables without a comment.
func checkExportedDocs(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() && !f.IsMain() }) {
		missing := func(pos token.Pos, kind, name string) {
			found = append(found, t.complaintAt(f, pos, "%s %s has no comment", kind, name))
		}
		for _, decl := range f.Go.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if name, exported := funcName(d); exported && d.Doc.Text() == "" {
					missing(d.Pos(), "function", name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					checkSpecDocs(d, spec, missing)
				}
			}
		}
	}
	return found
}

// checkSpecDocs calls missing for each exported name without a comment in spec, which is a part of the declaration d.
func checkSpecDocs(d *ast.GenDecl, spec ast.Spec, missing func(pos token.Pos, kind, name string)) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if d.Doc.Text()+s.Doc.Text() == "" {
			missing(s.Pos(), "type", s.Name.Name)
		}
		methods, ok := s.Type.(*ast.InterfaceType)
		if !ok {
			return
		}
		for _, m := range methods.Methods.List {
			for _, name := range m.Names { // an embedded interface has none
				if len(methods.Methods.List) > 1 && name.IsExported() && m.Doc.Text()+m.Comment.Text() == "" {
					missing(m.Pos(), "method", s.Name.Name+"."+name.Name)
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && d.Doc.Text()+s.Doc.Text()+s.Comment.Text() == "" {
				missing(name.Pos(), d.Tok.String(), name.Name)
			}
		}
	}
}

// funcName returns the name of a function, as "T.M" for a method, and whether it and the type are exported.
func funcName(d *ast.FuncDecl) (name string, exported bool) {
	if d.Recv == nil {
		return d.Name.Name, d.Name.IsExported()
	}
	recv := d.Recv.List[0].Type
	for {
		switch r := recv.(type) {
		case *ast.StarExpr:
			recv = r.X
		case *ast.IndexExpr:
			recv = r.X
		case *ast.IndexListExpr:
			recv = r.X
		case *ast.Ident:
			return r.Name + "." + d.Name.Name, r.IsExported() && d.Name.IsExported()
		default: // nothing else is a receiver
			return d.Name.Name, false
		}
	}
}
