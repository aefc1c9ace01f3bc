// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"slices"
	"strings"
)

// testKits wants the comment of each package that others import to say what they test with, in a sentence or a section that
// begins with "Test kit". The map of the house, kits themselves and what is internal need none.
func testKits(t *Tree) (found []Complaint) {
	for f := range t.source(func(f *File) bool { return !f.Test() && !f.Main() }) {
		text := f.Go.Doc.Text()
		internal := slices.Contains(strings.Split(f.Dir(), "/"), "internal")
		compared := strings.HasPrefix(f.Dir(), "conformance") // a module of tests
		if text == "" || f.Dir() == "." || internal || compared || strings.HasSuffix(f.Go.Name.Name, "test") {
			continue
		}
		if !strings.Contains(text, "Test kit") {
			found = append(found, t.at(f, f.Go.Package, "package comment does not say where the test kit is"))
		}
	}
	return found
}
