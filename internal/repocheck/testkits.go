// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"slices"
	"strings"
)

// checkTestKits reports each public package whose comment does not state where its test kit is.
func checkTestKits(t *Tree) (found []Complaint) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() && !f.IsMain() }) {
		text := f.Go.Doc.Text()
		internal := slices.Contains(strings.Split(f.Dir(), "/"), "internal")
		compared := strings.HasPrefix(f.Dir(), "conformance") // a module of tests
		if text == "" || f.Dir() == "." || internal || compared || strings.HasSuffix(f.Go.Name.Name, "test") {
			continue
		}
		if !strings.Contains(text, "Test kit") {
			found = append(found, t.complaintAt(f, f.Go.Package, "package comment does not say where the test kit is"))
		}
	}
	return found
}
