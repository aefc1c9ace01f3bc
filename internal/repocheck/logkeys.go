// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
)

// logKey is how the key of a log line is written.
var logKey = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// logKeys wants one way to write the keys of log lines, lowerCamel, and one key for errors: who looks for what went wrong
// in the log of an agent does not know which package wrote the line.
func logKeys(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() }) {
		slog := importName(f.Go, "log/slog")
		ast.Inspect(f.Go, func(n ast.Node) bool {
			for _, key := range keysOf(n, slog) {
				switch text, _ := strconv.Unquote(key.Value); {
				case text == "err":
					found = append(found, t.at(f, key.Pos(), "log key err is error elsewhere"))
				case text != "" && !logKey.MatchString(text): // a group without a name is its members
					found = append(found, t.at(f, key.Pos(), "log key %q is not lowerCamel", text))
				}
			}
			return true
		})
	}
	return found
}

// keysOf returns the keys in one call that logs, or makes an attribute, or in a list of arguments for one.
func keysOf(n ast.Node, slog string) []*ast.BasicLit {
	if list, ok := n.(*ast.CompositeLit); ok {
		array, ok := list.Type.(*ast.ArrayType)
		if element, isName := arrayElement(array, ok); isName && element == "any" && len(list.Elts)%2 == 0 {
			return alternate(list.Elts)
		}
		return nil
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if pkg, ok := method.X.(*ast.Ident); ok && slog != "" && pkg.Name == slog && len(call.Args) == 2 && attributes[method.Sel.Name] {
		return alternate(call.Args)
	}
	message, logs := messageAt[method.Sel.Name]
	if !logs || len(call.Args) <= message || message >= 0 && stringLiteral(call.Args[message]) == nil {
		return nil
	}
	return alternate(call.Args[message+1:])
}

// arrayElement returns the name of the type of which there is a list.
func arrayElement(array *ast.ArrayType, ok bool) (name string, isName bool) {
	if !ok {
		return "", false
	}
	element, isName := array.Elt.(*ast.Ident)
	if !isName {
		return "", false
	}
	return element.Name, true
}

// messageAt says which argument of a method that logs is the message; the keys and values come after it. The last ones are
// those of this repository, which add what a line is about.
var messageAt = map[string]int{ //nolint:gochecknoglobals // only read
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "With": -1,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"log": 0, "warn": 0,
}

// attributes are the functions of log/slog that make one.
var attributes = map[string]bool{ //nolint:gochecknoglobals // only read
	"Any": true, "String": true, "Bool": true, "Int": true, "Int64": true, "Uint64": true, "Float64": true,
	"Duration": true, "Time": true,
}

// alternate returns the literal keys among keys and values. An attribute is both at once.
func alternate(args []ast.Expr) (keys []*ast.BasicLit) {
	for i := 0; i < len(args); {
		key := stringLiteral(args[i])
		if key == nil {
			i++
			continue
		}
		keys = append(keys, key)
		i += 2
	}
	return keys
}

func stringLiteral(e ast.Expr) *ast.BasicLit {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		return lit
	}
	return nil
}
