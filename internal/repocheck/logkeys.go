// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
)

// logKey matches a valid key of a log line.
var logKey = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// checkLogKeys reports keys of log attributes that are not in lowerCamel, or err in place of error.
func checkLogKeys(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() }) {
		slog := importName(f.Go, "log/slog")
		ast.Inspect(f.Go, func(n ast.Node) bool {
			for _, key := range logKeysOf(n, slog) {
				switch text, _ := strconv.Unquote(key.Value); {
				case text == "err":
					found = append(found, t.complaintAt(f, key.Pos(), "log key err is error elsewhere"))
				case text != "" && !logKey.MatchString(text): // the members of a group without a name
					found = append(found, t.complaintAt(f, key.Pos(), "log key %q is not lowerCamel", text))
				}
			}
			return true
		})
	}
	return found
}

// logKeysOf returns the string literal keys in n, if it logs or contains log attributes. slog is the file's name of
// log/slog.
func logKeysOf(n ast.Node, slog string) []*ast.BasicLit {
	if list, ok := n.(*ast.CompositeLit); ok {
		array, ok := list.Type.(*ast.ArrayType)
		if element, isName := elementType(array, ok); isName && element == "any" && len(list.Elts)%2 == 0 {
			return literalKeys(list.Elts)
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
		return literalKeys(call.Args)
	}
	message, logs := messageIndex[method.Sel.Name]
	if !logs || len(call.Args) <= message || message >= 0 && stringLiteral(call.Args[message]) == nil {
		return nil
	}
	return literalKeys(call.Args[message+1:])
}

// elementType returns the name of the element type of array, for example "any", if it is a plain name. ok is false without
// an array.
func elementType(array *ast.ArrayType, ok bool) (name string, isName bool) {
	if !ok {
		return "", false
	}
	element, isName := array.Elt.(*ast.Ident)
	if !isName {
		return "", false
	}
	return element.Name, true
}

// messageIndex has the argument index of the message of each logging method; keys and values follow it. The last two methods are
// those of this repository.
var messageIndex = map[string]int{ //nolint:gochecknoglobals // only read
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "With": -1,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"log": 0, "warn": 0,
}

// attributes are the functions of log/slog that create an attribute.
var attributes = map[string]bool{ //nolint:gochecknoglobals // only read
	"Any": true, "String": true, "Bool": true, "Int": true, "Int64": true, "Uint64": true, "Float64": true,
	"Duration": true, "Time": true,
}

// literalKeys returns the string literals among the keys in args, the arguments of a log call. A key and its value are two
// arguments, but an slog.Attr is a single argument.
func literalKeys(args []ast.Expr) (keys []*ast.BasicLit) {
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
