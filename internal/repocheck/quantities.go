// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"strings"
)

// The package that parses quantities, and the one whose parser takes minutes for some texts.
const (
	quantityDir     = "internal/quantity"
	resourcePackage = "k8s.io/apimachinery/pkg/api/resource"
)

// quantities requires that quantities are parsed by internal/quantity, which bounds the time. Tests and their kits are excepted, constants,
// and the flags of commands.
func quantities(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool {
		return !f.Test() && !f.Nested && f.Dir() != quantityDir && !strings.HasSuffix(f.Dir(), "test")
	}) {
		pkg := importName(f.Go, resourcePackage)
		if pkg == "" {
			continue
		}
		constants := constantArguments(f.Go)
		ast.Inspect(f.Go, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || constants[sel] {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			switch name := sel.Sel.Name; {
			case x != nil && x.Name == pkg && (name == "ParseQuantity" || name == "MustParse" || name == "QuantityValue" && !f.Main()):
				found = append(found, t.at(f, sel.Pos(), "resource.%s can take minutes: use %s.Parse", name, quantityDir))
			case name == "UnmarshalJSON" || name == "UnmarshalCBOR":
				found = append(found, t.at(f, sel.Pos(), "%s beside package resource: a quantity is parsed by %s.Parse", name, quantityDir))
			}
			return true
		})
	}
	return found
}

// constantArguments returns the functions that a file calls with a string literal alone.
func constantArguments(f *ast.File) map[ast.Expr]bool {
	calls := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 {
			if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				calls[call.Fun] = true
			}
		}
		return true
	})
	return calls
}
