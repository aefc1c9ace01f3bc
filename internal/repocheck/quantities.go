// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"strings"
)

// quantityDir is the directory of the package that parses quantities in limited time. The parser in resourcePackage can take
// minutes.
const (
	quantityDir     = "internal/quantity"
	resourcePackage = "k8s.io/apimachinery/pkg/api/resource"
)

// checkQuantities reports code that parses a resource quantity without the time limit of internal/quantity.
func checkQuantities(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool {
		return !f.IsTest() && !f.Nested && f.Dir() != quantityDir && !strings.HasSuffix(f.Dir(), "test")
	}) {
		pkg := importName(f.Go, resourcePackage)
		if pkg == "" {
			continue
		}
		// String literals are permitted.
		constants := callsWithLiteral(f.Go)
		ast.Inspect(f.Go, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || constants[sel] {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			switch name := sel.Sel.Name; {
			case x != nil && x.Name == pkg && (name == "ParseQuantity" || name == "MustParse" || name == "QuantityValue" && !f.IsMain()):
				found = append(found, t.complaintAt(f, sel.Pos(), "resource.%s can take minutes: use %s.Parse", name, quantityDir))
			case name == "UnmarshalJSON" || name == "UnmarshalCBOR":
				found = append(found, t.complaintAt(f, sel.Pos(), "%s beside package resource: a quantity is parsed by %s.Parse", name, quantityDir))
			}
			return true
		})
	}
	return found
}

// callsWithLiteral returns the called function of each call in f whose only argument is a string literal.
func callsWithLiteral(f *ast.File) map[ast.Expr]bool {
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
