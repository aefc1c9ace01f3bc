// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The leaves are the tests without groups; a group that fails on its own is one.
func TestParseResults(t *testing.T) {
	lines := []string{
		`{"Action":"run","Test":"TestA"}`, `{"Action":"run","Test":"TestA/x"}`, `{"Action":"run","Test":"TestA/y"}`,
		`{"Action":"output","Test":"TestA/x","Output":"wrong\n"}`, `{"Action":"fail","Test":"TestA/x"}`, `{"Action":"pass","Test":"TestA/y"}`, `{"Action":"fail","Test":"TestA"}`,
		`{"Action":"run","Test":"TestB"}`, `{"Action":"run","Test":"TestB/x"}`, `{"Action":"pass","Test":"TestB/x"}`, `{"Action":"fail","Test":"TestB"}`,
		`{"Action":"run","Test":"TestC"}`, `{"Action":"skip","Test":"TestC"}`,
		`{"Action":"output","Output":"nodeagent: cpus.Layout.Take 3\n"}`, `{"Action":"output","Output":"nodeagent: cpus.Policy.Hints 0\n"}`, `{"Action":"fail"}`,
	}
	results, err := parseResults(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"TestA/x": "fail", "TestA/y": "pass", "TestB/x": "pass", "TestB": "fail", "TestC": "skip"}, results.leaves())
	require.Equal(t, []string{
		"fails and is no exception: TestB", "is an exception and does not fail: TestA/y", "no test calls the function: cpus.Policy.Hints 0",
	}, results.compare(map[string]string{"TestA/x": "a reason", "TestA/y": "a reason"}))
}

// A package that ends early, as in a panic, is an error, and the test that runs has failed.
func TestParseResultsOfPanic(t *testing.T) {
	lines := []string{`{"Action":"run","Test":"TestA"}`, `{"Action":"output","Output":"panic: x\n"}`, `{"Action":"fail"}`}
	results, err := parseResults(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
	require.Equal(t, []string{"the package has ended early:\npanic: x\n", "fails and is no exception: TestA"}, results.compare(nil))
}

func TestReadExceptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exceptions.txt")
	require.NoError(t, os.WriteFile(path, []byte("# comment\n\nfirst reason\n\tTestA/x\n\tTestB\nsecond reason\n\tTestC\n"), 0o600))
	exceptions, err := readExceptions(path)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"TestA/x": "first reason", "TestB": "first reason", "TestC": "second reason"}, exceptions)

	require.NoError(t, os.WriteFile(path, []byte("reason\n\tTestA\nother\n\tTestA\n"), 0o600))
	_, err = readExceptions(path)
	require.ErrorContains(t, err, "TestA has no reason, or is listed twice")
}

// Only declarations get the prefix, and calls keep their names.
func TestRenameFunctions(t *testing.T) {
	source := "package p\n\nfunc take() { give() }\n\nfunc (p *policy) Start() { take() }\n\nfunc (o other) Start() {}\n"
	renamed, found, err := renameFunctions([]byte(source), []string{"take", "policy.Start", "missing"})
	require.NoError(t, err)
	require.Equal(t, []string{"take", "policy.Start"}, found)
	require.Equal(t, "package p\n\nfunc kubeletTake() { give() }\n\nfunc (p *policy) kubeletStart() { take() }\n\nfunc (o other) Start() {}\n", string(renamed))
}
