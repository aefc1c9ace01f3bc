// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/scriptlines"
	"github.com/seed81659283/nodeagent/nodetest"
)

func TestScripts(t *testing.T) { nodetest.RunScripts(t, "testdata/*.txtar") }

// Each script has one log with a Loop, however often it is played and on however many processors. NODETEST_RUNS sets the number of repetitions.
func TestScriptsHaveOneLog(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, section := range scriptlines.Sections(string(text)) {
			t.Run(filepath.Base(file)+"/"+section.Title, func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
				output, log := nodetest.PlayScript(t.Context(), section.Text)
				for i := range runs(t) {
					runtime.GOMAXPROCS(1 + i%4)
					again, logAgain := nodetest.PlayScript(t.Context(), section.Text)
					require.Equal(t, output, again, "run %d", i)
					require.Equal(t, log, logAgain, "run %d", i)
				}
			})
		}
	}
}
