// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
	"strings"
)

// initFunctions wants no init: importing a package must do nothing.
func initFunctions(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() }) {
		for _, decl := range f.Go.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				found = append(found, t.at(f, d.Pos(), "func init runs at import"))
			}
		}
	}
	return found
}

// globals wants no package-level variable but those that nobody can write to by accident: errors, compiled
// expressions and templates, embedded files and interface assertions. A table that is only read says so with the
// remark that silences the linter of the same name.
func globals(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() }) {
		excused := t.remarks(f, "//nolint:gochecknoglobals // ")
		for _, decl := range f.Go.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR || strings.Contains(directives(d.Doc), "//go:embed") {
				continue
			}
			for _, name := range variables(d) {
				if !excused[t.fset.Position(name.Pos()).Line] {
					found = append(found, t.at(f, name.Pos(), "var %s is state of the package", name.Name))
				}
			}
		}
	}
	return found
}

// variables returns the names in a declaration whose values can be written to.
func variables(d *ast.GenDecl) (names []*ast.Ident) {
	for _, spec := range d.Specs {
		s, _ := spec.(*ast.ValueSpec)
		for i, name := range s.Names {
			if name.Name != "_" && (i >= len(s.Values) || !constant(s.Values[i])) {
				names = append(names, name)
			}
		}
	}
	return names
}

// remarks returns the lines that carry a comment which begins with prefix.
func (t *Tree) remarks(f *File, prefix string) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.Go.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, prefix) {
				lines[t.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// directives returns a comment as it is written, with the lines that Text leaves out.
func directives(doc *ast.CommentGroup) string {
	var b strings.Builder
	if doc != nil {
		for _, c := range doc.List {
			b.WriteString(c.Text + "\n")
		}
	}
	return b.String()
}

// constant reports whether an expression makes a value that has no method or field to change it.
func constant(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch types.ExprString(call.Fun) {
	case "errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "strings.NewReplacer":
		return true
	}
	return false
}

// detachedContexts wants no context that nobody can end, outside of commands and tests.
func detachedContexts(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() && !f.Main() }) {
		pkg := importName(f.Go, "context")
		ast.Inspect(f.Go, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Background" || sel.Sel.Name == "TODO") {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
					found = append(found, t.at(f, sel.Pos(), "context.%s cannot be ended by the caller", sel.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}

// importName returns the name under which a file knows a package of the standard library, or "".
func importName(f *ast.File, importPath string) string {
	for _, spec := range f.Imports {
		switch p, _ := strconv.Unquote(spec.Path.Value); {
		case p != importPath:
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return importPath[strings.LastIndex(importPath, "/")+1:]
		}
	}
	return ""
}

// constructor matches the names of functions that make a value.
var constructor = regexp.MustCompile(`^(New|Open|Dial)([A-Z0-9]|$)`)

// startingConstructors wants no goroutine in a function that makes a value: what starts one must be able to end it.
// It sees go statements and calls of a method Go (of a WaitGroup or an errgroup), not what the function calls.
func startingConstructors(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() }) {
		for _, decl := range f.Go.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv != nil || d.Body == nil || !constructor.MatchString(d.Name.Name) {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if starts(n) {
					found = append(found, t.at(f, n.Pos(), "%s starts a goroutine", d.Name.Name))
				}
				return true
			})
		}
	}
	return found
}

// starts reports whether a node starts a goroutine.
func starts(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Go"
	}
	return false
}
