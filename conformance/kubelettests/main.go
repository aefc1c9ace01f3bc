// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubelettests runs the kubelet's unit tests of its CPU, memory and topology managers on packages of nodeagent. The files of _unit declare functions
// of the kubelet's packages again, with bodies that call nodeagent. In a generated copy of each of the kubelet's files, the functions of the same names get
// the prefix kubelet, so that the kubelet's tests call the functions of _unit.
//
// A test that fails must be in exceptions.txt of its package, and a test in that file must fail.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kubeletPackages returns the packages whose tests run, below pkg/kubelet/cm of the kubelet's module. Each has a directory in _unit.
func kubeletPackages() []string { return []string{"topologymanager", "cpumanager", "memorymanager"} }

func main() {
	lab := flag.String("lab", "", "directory with go.mod, overlay.json and the links to the modules")
	run := flag.String("run", "", "run only the tests that match, and do not compare them with the exceptions")
	only := flag.String("package", "", "run only the tests of this package")
	verbose := flag.Bool("v", false, "print the output of failing tests")
	flag.Parse()
	if err := runPackages(*lab, *only, *run, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "kubelettests:", err)
		os.Exit(1)
	}
}

// runPackages writes the overlay, and runs the tests of the packages.
func runPackages(lab, only, run string, verbose bool) error {
	lab, err := filepath.Abs(lab)
	if err != nil {
		return err
	}
	overlay, err := writeOverlay(lab, "_unit")
	if err != nil {
		return err
	}
	failed := []string{}
	for _, name := range kubeletPackages() {
		if only != "" && only != name {
			continue
		}
		exceptions, err := readExceptions(filepath.Join("_unit", name, "exceptions.txt"))
		if err != nil {
			return err
		}
		results, err := runTests(lab, overlay, name, run)
		if err != nil {
			return err
		}
		results.print(os.Stdout, name, exceptions, verbose)
		if problems := results.compare(exceptions); run == "" && len(problems) > 0 {
			failed = append(failed, problems...)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d differences from the exceptions:\n%s", len(failed), strings.Join(failed, "\n"))
	}
	return nil
}
