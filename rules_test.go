// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// sizes says how many lines a package and a file may have. Whoever reaches a limit looks whether there are two ideas in it;
// the form is in the documentation of repocheck.Sizes.
const sizes = `
package:   2500
file:       400
test file:  500

cri/critest 3600: the fake, the interceptor and the suite are one test kit, which its users know by one name
`

func TestRepositoryRules(t *testing.T) {
	tree := load(t)
	for _, rule := range repocheck.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			report(t, rule.Check(tree))
		})
	}
}

func TestSizes(t *testing.T) {
	s, err := repocheck.ParseSizes(sizes)
	require.NoError(t, err)
	report(t, s.Check(load(t)))
}

// The program in README.md is vetted as it stands, in a directory of its own.
func TestQuickStart(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, program, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found, "no Go program in README.md")
	program, _, _ = strings.Cut(program, "```")
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))

	out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
	assert.NoError(t, err, string(out))
}

// Every package that can be imported is on the map and in the table.
func TestPackagesAreListed(t *testing.T) {
	mapped, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	tree := load(t)
	for _, dir := range tree.Packages() {
		assert.True(t, strings.Contains(string(mapped), "["+tree.Module+"/"+dir+"]"), "%s is not in doc.go", dir)
		assert.True(t, strings.Contains(string(readme), "[`"+dir+"`]("+dir+")"), "%s is not in README.md", dir)
	}
}
