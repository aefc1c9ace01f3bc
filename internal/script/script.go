// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package script runs tests that are written as scripts in testdata: each line is an input, and the lines below it are the
// expected output. The test defines the meaning of the lines.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed81659283/nodeagent/internal/scriptlines"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata") //nolint:gochecknoglobals // a flag of test binaries

// Run executes the scripts in the files that match pattern, each as a subtest. A script contains commands and their expected
// output; play returns it with the actual output, which must not differ. With the flag -update, Run writes the actual output
// to the file.
//
// A file is a single script, or a comment followed by scripts that each start with a line "-- NAME --".
func Run(t *testing.T, pattern string, play func(t *testing.T, script string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", pattern, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		result := runSections(t, name, string(data), play)
		if *update && result != string(data) {
			if err := os.WriteFile(file, []byte(result), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// runSections executes the scripts in text with play, and returns text with the actual output. text is the content of the
// script file called name, which names the subtests.
func runSections(t *testing.T, name, text string, play func(t *testing.T, script string) string) string {
	t.Helper()
	var result strings.Builder
	for _, section := range scriptlines.Sections(text) {
		if section.Title == "" && section.HasTitles {
			result.WriteString(section.Text) // the comment of the file
			continue
		}
		result.WriteString(section.Header)
		result.WriteString(runScript(t, strings.TrimSuffix(name+"/"+section.Title, "/"), section.Text, play))
	}
	return result.String()
}

// runScript executes a script as a subtest, and returns it with its actual output, or unchanged if the subtest stops early.
func runScript(t *testing.T, name, script string, play func(t *testing.T, script string) string) string {
	t.Helper()
	result := script
	t.Run(name, func(t *testing.T) {
		result = play(t, script)
		if result == script || *update {
			return
		}
		from, line := 0, 1 // the first line that differs
		for i := 0; i < min(len(result), len(script)) && result[i] == script[i]; i++ {
			if result[i] == '\n' {
				from, line = i+1, line+1
			}
		}
		t.Errorf("line %d: want\n%s\ngot\n%s", line, script[from:], result[from:])
	})
	return result
}

// Lines executes a script line by line and returns it with the new output. See [scriptlines.Lines] for the arguments mark
// and do.
func Lines(script, mark string, do func(out *strings.Builder, words []string)) string {
	return scriptlines.Lines(script, mark, do)
}
