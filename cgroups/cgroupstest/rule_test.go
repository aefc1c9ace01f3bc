// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRulesAreDocumented finds every rule of the suite, word for word, in the comments of package cgroups.
func TestRulesAreDocumented(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var doc strings.Builder
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, group := range f.Comments {
			doc.WriteString(strings.Join(strings.Fields(group.Text()), " ") + "\n")
		}
	}
	rules := constants(t, "rule.go")
	require.Greater(t, len(rules), 20)
	for name, rule := range rules {
		_, sentence, ok := strings.Cut(rule, ": ")
		assert.True(t, ok, "%s does not say what it is about", name)
		assert.True(t, strings.Contains(doc.String(), sentence), "%s: %q is not in the documentation", name, sentence)
	}
}

// constants returns the string constants of a file.
func constants(t *testing.T, file string) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			found[v.Names[0].Name] = value
		}
		return true
	})
	return found
}
