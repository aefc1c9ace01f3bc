// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// Each rule is checked with the small repository in its archive, which has files that violate the rule and files that
// comply. The section "want" lists the expected complaints. A rule without an archive fails, and so does an archive without
// a violation.
func TestRules(t *testing.T) {
	for _, rule := range repocheck.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", rule.Name+".txtar"))
			require.NoError(t, err)
			tree, want := loadArchive(t, archive)
			require.NotEmpty(t, want[0], "the archive has a violation")
			assert.Equal(t, want, texts(rule.Check(tree)))
		})
	}
}

// loadArchive loads the files of archive as a repository. want has the lines of the last section, "want".
func loadArchive(t *testing.T, archive *txtar.Archive) (tree *repocheck.Tree, want []string) {
	t.Helper()
	last := len(archive.Files) - 1
	require.Equal(t, "want", archive.Files[last].Name, "name of the last section")
	files, err := txtar.FS(&txtar.Archive{Files: archive.Files[:last]})
	require.NoError(t, err)
	tree, err = repocheck.Load(files)
	require.NoError(t, err)
	return tree, strings.Split(strings.TrimSpace(string(archive.Files[last].Data)), "\n")
}

func texts(complaints []repocheck.Complaint) (texts []string) {
	for _, c := range complaints {
		texts = append(texts, c.String())
	}
	return texts
}

func TestPackages(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "lattice.txtar"))
	require.NoError(t, err)
	tree, _ := loadArchive(t, archive)
	assert.Equal(t, []string{"cellar", "house/bath", "house/housetest", "house/kitchen", "shed", "wall"}, tree.Packages())
}
