// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"strings"
)

// optionLines is the largest number of comment lines of an option field. Longer text belongs into the comment of the package or
// the struct.
const optionLines = 2

// checkOptionDocs reports each option whose comment has more than optionLines lines. Options are the fields of exported
// structs with a name that ends in Options.
func checkOptionDocs(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() && !f.IsMain() }) {
		for _, decl := range f.Go.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() || !strings.HasSuffix(s.Name.Name, "Options") {
					continue
				}
				fields, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range fields.Fields.List {
					if n := commentLines(field.Doc); n > optionLines {
						found = append(found, t.complaintAt(f, field.Pos(),
							"option of %s has a comment of %d lines, and %d are enough", s.Name.Name, n, optionLines))
					}
				}
			}
		}
	}
	return found
}

// commentLines returns the number of lines of the comment c.
func commentLines(c *ast.CommentGroup) int {
	if c == nil {
		return 0
	}
	return len(c.List)
}
