// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

func TestCheckImports(t *testing.T) {
	archive, policy := parsePolicy(t, "lattice.txtar")
	tree, want := loadArchive(t, archive)
	assert.Equal(t, want, texts(policy.CheckImports(tree)))
}

func TestCheckBudgets(t *testing.T) {
	archive, policy := parsePolicy(t, "budget.txtar")
	_, want := loadArchive(t, archive)
	dir := t.TempDir()
	for _, f := range archive.Files {
		file := filepath.Join(dir, filepath.FromSlash(f.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, f.Data, 0o644))
	}

	closure, err := repocheck.LoadClosure(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, want, texts(policy.CheckBudgets(closure)))
}

func TestLoadClosureOfABrokenModule(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("modul"), 0o644))
	_, err := repocheck.LoadClosure(t.Context(), dir)
	assert.ErrorContains(t, err, "unknown directive: modul", "error of the go command")
}

func TestParsePolicyNamesTheLine(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"wall: PAINT", `line 1: "PAINT" is neither a group above nor a package`},
		{"\n\nwall floor", `line 3: "wall floor" is neither a group nor a grant`},
		{"wall:\nfloor wall:", "line 2: package wall has a line already"},
		{"wall max: os", "line 1: max wants one number before the colon"},
		{"wall max 3 floor: os", "line 1: max wants one number before the colon"},
		{"wall max three: os", `line 1: max "three" is not a number of packages`},
		{"wall max -1: os", `line 1: max "-1" is not a number of packages`},
		{"/wall: os", `line 1: "/wall" is not a package`},
		{"PAINT = BRUSH", `line 1: "BRUSH" is neither a group above nor a package`},
	} {
		_, err := repocheck.ParsePolicy(tt.text)
		assert.EqualError(t, err, "parse policy: "+tt.want)
	}
}

// parsePolicy reads an archive, and returns it with the policy in its section "policy".
func parsePolicy(t *testing.T, name string) (*txtar.Archive, *repocheck.Policy) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	for _, f := range archive.Files {
		if f.Name == "policy" {
			policy, err := repocheck.ParsePolicy(string(f.Data))
			require.NoError(t, err)
			return archive, policy
		}
	}
	t.Fatalf("%s has no section policy", name)
	return nil, nil
}
