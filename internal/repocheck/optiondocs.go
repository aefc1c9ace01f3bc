// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"strings"
)

// optionLines is how long the comment of an option may be, in lines. What takes longer to say is about the package or a group
// of options, and stands there.
const optionLines = 2

// optionDocs wants the fields of exported structs of options to be read at a glance.
func optionDocs(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() && !f.Main() }) {
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
						found = append(found, t.at(f, field.Pos(),
							"option of %s has a comment of %d lines, and %d are enough", s.Name.Name, n, optionLines))
					}
				}
			}
		}
	}
	return found
}

// commentLines returns how many lines a comment has.
func commentLines(c *ast.CommentGroup) int {
	if c == nil {
		return 0
	}
	return len(c.List)
}
