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

// sizes limits the lines of a file: see repocheck.Sizes. A file that reaches its limit usually serves two purposes.
const sizes = `
file:       400
test file:  500
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

// Package agent only connects engines. A rule of a node in package agent could not be used by programs that connect the
// engines themselves, and only a test with a whole node would cover it. Code beyond this limit usually is such a rule and
// belongs into the package of its engine.
func TestAgentOnlyWires(t *testing.T) {
	const limit = 1600
	lines := 0
	for _, f := range load(t).Files {
		if f.Dir() == "agent" && f.Go != nil && !f.IsTest() {
			lines += strings.Count(f.Text, "\n")
		}
	}
	assert.Positive(t, lines)
	assert.LessOrEqual(t, lines, limit, "package agent has %d lines, not at most %d", lines, limit)
}

// maxPackageComment limits the lines of a package comment. Longer text belongs into an Example, DECISIONS.md or
// ARCHITECTURE.md.
const maxPackageComment = 60

// A package comment is short enough to be read at once. The map in doc.go has a line for each package.
func TestPackageCommentsAreShort(t *testing.T) {
	checked := 0
	for _, f := range load(t).Files {
		if f.Go == nil || f.Go.Doc == nil || f.IsTest() || f.Dir() == "." {
			continue
		}
		lines := 1 + strings.Count(strings.TrimSpace(f.Go.Doc.Text()), "\n")
		assert.LessOrEqual(t, lines, maxPackageComment, "the package comment in %s has %d lines", f.Path, lines)
		checked++
	}
	assert.Greater(t, checked, 100)
}

// The program in README.md is vetted unchanged, in a directory of its own.
func TestQuickStart(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, program, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found, "README.md must contain a Go program")
	program, _, _ = strings.Cut(program, "```")
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))

	out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
	assert.NoError(t, err, string(out))
}

// maxPublicPackages limits the packages that other modules can import: each package is a promise and a line on the map in
// doc.go.
const maxPublicPackages = 70

// Every package that other modules can import is on the map in doc.go.
func TestPackagesAreListed(t *testing.T) {
	mapped, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	tree := load(t)
	assert.LessOrEqual(t, len(tree.Packages()), maxPublicPackages)
	for _, dir := range tree.Packages() {
		assert.True(t, strings.Contains(string(mapped), "["+tree.Module+"/"+dir+"]"), "%s is not in doc.go", dir)
	}
}

// Tests of packages with synctest bubbles run on one processor: the race detector of Go 1.26 sometimes crashes when timers
// of a bubble fire on several processors (golang/go#78156). conformance is excluded, because it is not tested with the race
// detector.
func TestBubblesHaveOneProcessor(t *testing.T) {
	bubbles, one := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "conformance") {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		bubbles[dir] = bubbles[dir] || strings.Contains(string(text), `"testing/synctest"`)
		one[dir] = one[dir] || strings.Contains(string(text), "GOMAXPROCS(1)")
		return err
	})
	require.NoError(t, err)
	for dir, has := range bubbles {
		assert.True(t, !has || one[dir], "%s has tests in synctest bubbles: its TestMain needs runtime.GOMAXPROCS(1)", dir)
	}
	assert.True(t, bubbles["pleg"])
}
