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

cgroups/cgroupstest 3200: the tree, the faults and the suite are one test kit, which its users know by one name
cgroups/driver 3060: v1 and v2 have each file of their own read, written and waited for, behind one type
cri/critest 3750: the fake, the interceptor and the suite are one test kit, which its users know by one name
lifecycle/podapi 2600: what the API server makes of a pod is one thing to look up, and grows with the fields that pods may have
nodestatus/summary 2700: one pass over the cgroups of a node and its pods, for summaries, for signals and for metrics
examples/agent 2900: the main of a whole node, one part of it in each file
hack/bench  2600: what is measured and beside what, in one program
volume      2900: one engine with one lock: volumes, devices, records and claims; what is pure is in packages below it
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

// Keeps the race detector of Go 1.26 from ending the tests of a package now and then: it crashes when timers of a synctest bubble fire on
// several processors (golang/go#78156), so that packages that have bubbles test on one, but for conformance, which is not tested with it.
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
