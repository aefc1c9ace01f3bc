// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// section reads the archive in file, and returns it with the text of this section.
func section(t *testing.T, file, name string) (*txtar.Archive, string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	for _, f := range archive.Files {
		if f.Name == name {
			return archive, string(f.Data)
		}
	}
	t.Fatalf("%s has no section %s", file, name)
	return nil, ""
}

func TestCheckSizes(t *testing.T) {
	archive, text := section(t, "sizes.txtar", "sizes")
	s, err := repocheck.ParseSizes(text)
	require.NoError(t, err)
	tree, want := loadArchive(t, archive)
	assert.Equal(t, want, texts(s.Check(tree)))
}

func TestParseSizesNamesTheLine(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"file 3", `line 1: "file 3" is neither a limit nor an exception with a reason`},
		{"\nwall 3:", `line 2: "wall 3:" is neither a limit nor an exception with a reason`},
		{"file: three", `line 1: "three" is not a number of lines`},
		{"wall -3: it is thin", `line 1: "-3" is not a number of lines`},
		{"wall: it is thin", "line 1: an exception is a path and a number of lines"},
		{"file: 2", "no line for test file"},
	} {
		_, err := repocheck.ParseSizes(tt.text)
		assert.EqualError(t, err, "parse sizes: "+tt.want)
	}
}

func TestCheckGlossary(t *testing.T) {
	archive, text := section(t, "glossary.txtar", "glossary")
	g, err := repocheck.ParseGlossary(text)
	require.NoError(t, err)
	tree, want := loadArchive(t, archive)
	assert.Equal(t, want, texts(g.Check(tree, "glossary.md")))
}

func TestParseGlossaryNamesTheLine(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"old word", `line 1: "old word" is no pattern and a word`},
		{"\nold word =>", `line 2: "old word =>" is no pattern and a word`},
		{"(last => first", "line 1: error parsing regexp: missing closing ): `(?i)\\b(?:(last)\\b`"},
	} {
		_, err := repocheck.ParseGlossary(tt.text)
		assert.EqualError(t, err, "parse glossary: "+tt.want)
	}
}
