// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// results are the results of the tests of one package.
type results struct {
	actions map[string]string   // last action of each test: pass, fail or skip
	output  map[string][]string // of each test
	calls   []string            // how often the tests called each function of nodeagent
	errors  []string            // of the package: it does not compile, or has ended early
}

// runTests runs the tests of a package of the kubelet.
func runTests(lab, overlay, name, run string) (*results, error) {
	args := []string{"test", "-vet=off", "-count=1", "-timeout=20m", "-json"}
	if run != "" {
		args = append(args, "-run="+run)
	}
	cmd := exec.Command("go", append(args, "k8s.io/kubernetes/pkg/kubelet/cm/"+name)...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-modfile="+filepath.Join(lab, "go.mod")+" -overlay="+overlay)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	return parseResults(bytes.NewReader(out))
}

// parseResults parses the output of go test -json.
func parseResults(r io.Reader) (*results, error) {
	res := &results{actions: map[string]string{}, output: map[string][]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	var packageOutput []string
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		switch event.Action {
		case "output", "build-output":
			if call, ok := strings.CutPrefix(event.Output, "nodeagent: "); ok {
				res.calls = append(res.calls, strings.TrimSpace(call))
			} else if event.Test != "" {
				res.output[event.Test] = append(res.output[event.Test], event.Output)
			} else {
				packageOutput = append(packageOutput, event.Output)
			}
		case "run":
			res.actions[event.Test] = "fail" // until it ends
		case "pass", "fail", "skip":
			if event.Test != "" {
				res.actions[event.Test] = event.Action
			} else if event.Action == "fail" && (len(res.calls) == 0 || len(res.actions) == 0) {
				res.errors = append(res.errors, "the package has ended early:\n"+strings.Join(packageOutput, ""))
			}
		}
	}
	return res, lines.Err()
}

// leaves returns the tests without those that only group others. A group that fails, and none of whose tests fails, is one.
func (r *results) leaves() map[string]string {
	groups, failed := map[string]bool{}, map[string]bool{}
	for name, action := range r.actions {
		for at := strings.LastIndex(name, "/"); at > 0; at = strings.LastIndex(name[:at], "/") {
			groups[name[:at]] = true
			failed[name[:at]] = failed[name[:at]] || action == "fail"
		}
	}
	leaves := maps.Clone(r.actions)
	for name := range groups {
		if r.actions[name] != "fail" || failed[name] {
			delete(leaves, name)
		}
	}
	return leaves
}

// compare returns a line for each difference from the exceptions.
func (r *results) compare(exceptions map[string]string) (problems []string) {
	leaves := r.leaves()
	problems = slices.Clone(r.errors)
	for _, name := range slices.Sorted(maps.Keys(leaves)) {
		if leaves[name] == "fail" && exceptions[name] == "" {
			problems = append(problems, "fails and is no exception: "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if leaves[name] != "fail" {
			problems = append(problems, "is an exception and does not fail: "+name)
		}
	}
	for _, call := range r.calls {
		if strings.HasSuffix(call, " 0") {
			problems = append(problems, "no test calls the function: "+call)
		}
	}
	return problems
}

// print prints the numbers of tests, the calls of nodeagent, and the reasons of the exceptions.
func (r *results) print(w io.Writer, name string, exceptions map[string]string, verbose bool) {
	counts, reasons := map[string]int{}, map[string]int{}
	leaves := r.leaves()
	for _, test := range slices.Sorted(maps.Keys(leaves)) {
		counts[leaves[test]]++
		if leaves[test] != "fail" {
			continue
		}
		reasons[exceptions[test]]++
		if verbose {
			fmt.Fprintln(w, test)
			fmt.Fprint(w, strings.Join(r.output[test], ""))
		}
	}
	fmt.Fprintf(w, "%s: %d tests, %d pass, %d fail, %d skipped\n", name, len(leaves), counts["pass"], counts["fail"], counts["skip"])
	for _, call := range r.calls {
		fmt.Fprintf(w, "  calls of %s\n", call)
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		if reason != "" {
			fmt.Fprintf(w, "  %d exceptions: %s\n", reasons[reason], reason)
		}
	}
}

// readExceptions reads the tests that fail, with their reasons. A reason is a line, and the names of its tests are the indented lines below it. Empty lines
// and lines with # are ignored.
func readExceptions(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	exceptions, reason := map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case line[0] != ' ' && line[0] != '\t':
			reason = name
		case reason == "" || exceptions[name] != "":
			return nil, fmt.Errorf("%s: %s has no reason, or is listed twice", path, name)
		default:
			exceptions[name] = reason
		}
	}
	return exceptions, nil
}
