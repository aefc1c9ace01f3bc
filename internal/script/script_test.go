// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package script_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/script"
)

// play returns the script text with the sum of all previous numbers as the output of each line.
func play(_ *testing.T, text string) string {
	sum := 0
	return script.Lines(text, ">", func(out *strings.Builder, words []string) {
		for _, word := range words {
			n := 0
			_, _ = fmt.Sscan(word, &n)
			sum += n
		}
		fmt.Fprintln(out, ">", sum)
	})
}

// envPattern makes the test binary run the scripts that match it, so that the output of a failing test can be checked.
const envPattern = "SCRIPT_TEST_PATTERN"

func TestAsChild(t *testing.T) {
	if os.Getenv(envPattern) == "" {
		t.Skip("runs only as a child of TestRun")
	}
	script.Run(t, os.Getenv(envPattern), play)
}

func TestRun(t *testing.T) {
	const (
		right = "1\n> 1\n# a comment\n\n2 3\n> 6\n"
		wrong = "1\n> 1\n2 3\n> 7\n> and more\n"
		fixed = "1\n> 1\n2 3\n> 6\n"
	)
	for name, c := range map[string]struct{ file, rewritten, output string }{
		"right":    {right, right, ""},
		"wrong":    {wrong, fixed, "line 4: want"},
		"sections": {"7\n-- one --\n" + right + "-- two --\n" + wrong, "7\n-- one --\n" + right + "-- two --\n" + fixed, "TestAsChild/file/two"},
		"empty":    {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file.txt")
			require.NoError(t, os.WriteFile(file, []byte(c.file), 0o600))
			output, ok := runChild(t, file)
			require.Equal(t, c.output == "", ok, output)
			require.Contains(t, output, c.output)
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, c.file, string(kept))

			require.NoError(t, flag.Set("update", "true"))
			defer func() { _ = flag.Set("update", "false") }()
			script.Run(t, file, play)
			rewritten, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, c.rewritten, string(rewritten))
		})
	}
	output, ok := runChild(t, filepath.Join(t.TempDir(), "*.txt"))
	require.False(t, ok, "a pattern without matching files is an error")
	require.Contains(t, output, "no scripts in")
}

// runChild runs the scripts that match pattern in a new test process. It returns the output of the process, and whether its
// tests pass.
func runChild(t *testing.T, pattern string) (output string, ok bool) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$")
	cmd.Env = append(os.Environ(), envPattern+"="+pattern)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}
