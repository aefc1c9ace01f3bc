// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package suitetest tests conformance suites: each of their rules is documented, and each finds faults.
package suitetest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Documented fails the test if a rule of a test suite is missing in the documentation. rules is a Go file with at least
// atLeast string constants "SUBJECT: SENTENCE". Each SENTENCE must occur in a comment of the Go files that match the pattern
// files.
func Documented(t *testing.T, rules, files string, atLeast int) {
	t.Helper()
	paths, err := filepath.Glob(files)
	if err != nil {
		t.Fatal(err)
	}
	var doc strings.Builder
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			doc.WriteString(strings.Join(strings.Fields(group.Text()), " ") + "\n")
		}
	}
	found := constants(t, rules)
	if len(found) < atLeast {
		t.Errorf("%s has %d rules, not at least %d", rules, len(found), atLeast)
	}
	for name, rule := range found {
		_, sentence, ok := strings.Cut(rule, ": ")
		if !ok {
			t.Errorf("%s does not say what it is about", name)
		}
		if !strings.Contains(doc.String(), sentence) {
			t.Errorf("%s: %q is not in the documentation", name, sentence)
		}
	}
}

// constants returns the string constants that a Go file declares, by name.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range v.Names {
			literal, ok := v.Values[i].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s of %s is no literal", name.Name, file)
			}
			if found[name.Name], err = strconv.Unquote(literal.Value); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	return found
}

// FindsFault fails the test unless the test suite detects a defect: it runs this test binary with the environment variable
// set to mutant, which enables the defect. The sub-test testCase of a test called Test...Mutant must then fail, with
// brokenRule, a part of the broken rule, in the output.
func FindsFault(t *testing.T, variable, mutant, testCase, brokenRule string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], `-test.run=^Test\w*Mutant$/`+testCase)
	cmd.Env = append(os.Environ(), variable+"="+mutant)
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("the suite passes (%v):\n%s", err, out)
	}
	for _, want := range []string{`broken: "`, brokenRule} {
		if !strings.Contains(string(out), want) {
			t.Fatalf("the suite does not say %q:\n%s", want, out)
		}
	}
}
