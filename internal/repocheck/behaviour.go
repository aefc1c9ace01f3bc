// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// checkInitFunctions reports each func init, because importing a package must not have an effect.
func checkInitFunctions(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
		for _, decl := range f.Go.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				found = append(found, t.complaintAt(f, d.Pos(), "func init runs at import"))
			}
		}
	}
	return found
}

// checkGlobals reports package-level variables whose values can be changed, without a comment nolint:gochecknoglobals.
func checkGlobals(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
		excused := t.linesWithComment(f, "//nolint:gochecknoglobals // ")
		maps.Copy(excused, t.linesWithComment(f, "//nolint:gochecknoglobals,nolintlint // ")) // a variable that the linter accepts by its name
		for _, decl := range f.Go.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR || strings.Contains(rawComment(d.Doc), "//go:embed") {
				continue
			}
			// Not errors, compiled expressions and templates, and interface assertions.
			for _, name := range mutableVariables(d) {
				if !excused[t.fset.Position(name.Pos()).Line] {
					found = append(found, t.complaintAt(f, name.Pos(), "var %s is state of the package", name.Name))
				}
			}
		}
	}
	return found
}

// mutableVariables returns the names that d declares and whose values can change after initialization. d is a variable
// declaration.
func mutableVariables(d *ast.GenDecl) (names []*ast.Ident) {
	for _, spec := range d.Specs {
		s, _ := spec.(*ast.ValueSpec)
		for i, name := range s.Names {
			if name.Name != "_" && (i >= len(s.Values) || !isImmutable(s.Values[i])) {
				names = append(names, name)
			}
		}
	}
	return names
}

// linesWithComment returns the numbers of the lines of f on which a comment starts with prefix.
func (t *Tree) linesWithComment(f *File, prefix string) map[int]bool {
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

// rawComment returns the complete text of doc, including directives such as go:embed, which doc.Text omits.
func rawComment(doc *ast.CommentGroup) string {
	var b strings.Builder
	if doc != nil {
		for _, c := range doc.List {
			b.WriteString(c.Text + "\n")
		}
	}
	return b.String()
}

// isImmutable reports whether the expression e is a call of a function with an immutable result, such as errors.New.
func isImmutable(e ast.Expr) bool {
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

// checkContexts reports uses of context.Background and context.TODO outside of commands and tests, because the caller cannot
// cancel these contexts.
func checkContexts(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() && !f.IsMain() }) {
		pkg := importName(f.Go, "context")
		ast.Inspect(f.Go, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Background" || sel.Sel.Name == "TODO") {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
					found = append(found, t.complaintAt(f, sel.Pos(), "context.%s cannot be ended by the caller", sel.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}

// importName returns the name by which the code in f refers to the package importPath. It returns "" if f does not import
// the package.
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

// constructorName matches the names of constructors.
var constructorName = regexp.MustCompile(`^(New|Open|Dial)([A-Z0-9]|$)`)

// checkConstructors reports constructors that start a goroutine, because the caller could not stop it.
func checkConstructors(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
		for _, decl := range f.Go.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv != nil || d.Body == nil || !constructorName.MatchString(d.Name.Name) {
				continue
			}
			// A go statement or a call of a method Go. Functions that the body calls are not searched.
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if startsGoroutine(n) {
					found = append(found, t.complaintAt(f, n.Pos(), "%s starts a goroutine", d.Name.Name))
				}
				return true
			})
		}
	}
	return found
}

// startsGoroutine reports whether n is a go statement or a call of a method Go.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Go"
	}
	return false
}
