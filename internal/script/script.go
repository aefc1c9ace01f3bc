// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package script runs tests that are written as scripts in testdata: what happens, line by line, and below each line
// what comes of it. What a line means is for the test to say.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata") //nolint:gochecknoglobals // a flag of test binaries

// title is the line that a section of a file begins with.
var title = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// Run plays the scripts in the files that match pattern and wants each to come out of play as it went in; with the
// flag -update it writes down what comes out. A file is one script, or a remark and then sections of one script each,
// which begin with a line "-- NAME --". Every script is a subtest.
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

// runSections plays the scripts in a file and returns what the file becomes.
func runSections(t *testing.T, name, text string, play func(t *testing.T, script string) string) string {
	t.Helper()
	titles, scripts := title.FindAllStringSubmatch(text, -1), title.Split(text, -1)
	if titles == nil {
		return run(t, name, text, play)
	}
	var result strings.Builder
	result.WriteString(scripts[0])
	for i, script := range scripts[1:] {
		result.WriteString(titles[i][0])
		result.WriteString(run(t, name+"/"+titles[i][1], script, play))
	}
	return result.String()
}

// run plays one script and returns what comes out, or the script if it fails.
func run(t *testing.T, name, script string, play func(t *testing.T, script string) string) string {
	t.Helper()
	result := script
	t.Run(name, func(t *testing.T) {
		result = play(t, script)
		if result == script || *update {
			return
		}
		from, line := 0, 1 // the first line that is not the same
		for i := 0; i < min(len(result), len(script)) && result[i] == script[i]; i++ {
			if result[i] == '\n' {
				from, line = i+1, line+1
			}
		}
		t.Errorf("line %d: want\n%s\ngot\n%s", line, script[from:], result[from:])
	})
	return result
}

// Lines plays a script line by line: it returns the script with what do writes below each line. Lines that begin with
// mark are what came out the last time; they are left out. Blank lines and comments, which begin with "#", do nothing.
func Lines(script, mark string, do func(out *strings.Builder, words []string)) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, mark) {
			continue
		}
		out.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			do(&out, words)
		}
	}
	return out.String()
}
