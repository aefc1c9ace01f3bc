// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package wiringtest_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

var (
	// saysDefault matches the comment of a field that states what the zero value does.
	saysDefault = regexp.MustCompile(`(?i)\b(zero|nil|empty|neither|none|default)\b|""`)
	// saysRequired matches the comment of a field that has no default.
	saysRequired = regexp.MustCompile(`(?i)\brequired\b|must not be (nil|empty)`)
	// saysAll matches the comment of a struct that states what nil does for all of its fields.
	saysAll = regexp.MustCompile(`(?i)(source|option|field) (that )?is nil`)
)

// values are Options structs that configure no component: they are part of a request.
var values = []string{"cri.NamespaceOptions", "cri.StreamOptions"}

// field is a field of the options of a constructor.
type field struct {
	name, comment string
	flag          bool // true for a bool or hooks, whose zero value needs no comment
}

// fields returns the fields of all exported Options structs, with names like "package.Type.Field".
func fields(t *testing.T) (found []field) {
	t.Helper()
	tree, err := repocheck.Load(os.DirFS("../.."))
	require.NoError(t, err)
	public := tree.Packages()
	for i := range tree.Files {
		f := &tree.Files[i]
		if f.Go == nil || f.IsTest() || f.Nested || !slices.Contains(public, f.Dir()) || isKit(f.Dir()) {
			continue
		}
		ast.Inspect(f.Go, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					found = append(found, fieldsOf(f.Dir(), s, d.Doc.Text())...)
				}
			}
			return false
		})
	}
	return found
}

// isKit reports whether the package in dir is a test kit. Its options are only for tests.
func isKit(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool { return strings.HasSuffix(part, "test") })
}

func fieldsOf(dir string, s *ast.TypeSpec, doc string) (found []field) {
	typ, ok := s.Type.(*ast.StructType)
	name := path.Base(dir) + "." + s.Name.Name
	if !ok || !s.Name.IsExported() || !strings.HasSuffix(s.Name.Name, "Options") || slices.Contains(values, name) {
		return nil
	}
	previous := ""
	for _, f := range typ.Fields.List {
		comment := f.Doc.Text() + f.Comment.Text()
		if comment == "" {
			comment = previous // the comment of a group of fields
		}
		previous = comment
		kind, _ := f.Type.(*ast.Ident)
		for _, n := range f.Names {
			one := field{name: name + "." + n.Name, comment: comment}
			one.flag = kind != nil && (kind.Name == "bool" || strings.HasSuffix(kind.Name, "Hooks"))
			if saysAll.MatchString(doc) {
				one.comment += " nil"
			}
			if required(doc, n.Name) {
				one.comment += " required"
			}
			found = append(found, one)
		}
	}
	return found
}

// required reports whether doc, the comment of a struct, states that the field called name is required.
func required(doc, name string) bool {
	for sentence := range strings.SplitSeq(doc, ". ") {
		if saysRequired.MatchString(sentence) && regexp.MustCompile(`\b`+name+`\b`).MatchString(sentence) {
			return true
		}
	}
	return false
}

// Every option has a comment that states its default, or a row in the table of required options. A new field without either
// fails the test.
func TestEveryOptionIsClassified(t *testing.T) {
	all := fields(t)
	require.Greater(t, len(all), 400, "the scan finds the options of all packages")
	rows := missing(t)
	var names []string
	for _, f := range all {
		names = append(names, f.name)
		_, row := rows[f.name]
		switch {
		case saysRequired.MatchString(f.comment) && !row && !saysDefault.MatchString(saysRequired.ReplaceAllString(f.comment, "")):
			assert.Fail(t, f.name+": its comment says that it is required, but missing has no row that checks the error")
		case !row && !f.flag && !saysDefault.MatchString(f.comment):
			assert.Fail(t, f.name+": state what its zero value does, or add a row to missing")
		}
	}
	for name := range rows {
		assert.Contains(t, names, name, "each row is of an existing field")
	}
}

// The error for a missing required option names the option.
func TestRequiredOptions(t *testing.T) {
	for name, construct := range missing(t) {
		t.Run(name, func(t *testing.T) {
			err := construct()
			require.Error(t, err)
			require.Contains(t, err.Error(), name[strings.LastIndex(name, ".")+1:])
		})
	}
}
