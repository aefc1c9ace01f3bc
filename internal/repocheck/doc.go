// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package repocheck holds the rules of this repository as functions over its source, for the tests in the root
// directory. It reads and complains; it changes no file, and it looks at one file or one import at a time, never
// at what the program does.
//
// # Model
//
// [Load] reads a repository into a [Tree]. A [Rule] turns a tree into a list of [Complaint], empty when all is
// well; [Rules] lists them. Three rules are parsed from a readable text: a [Policy] says which package may import what
// and how many third-party packages may come along, [Sizes] how long files may be, and a [Glossary] which
// words must not come back.
//
//	tree, err := repocheck.Load(os.DirFS("."))
//	for _, rule := range repocheck.Rules() {
//		for _, c := range rule.Check(tree) {
//			fmt.Println(c)
//		}
//	}
//
// Every rule has a test with a planted violation, so that a rule which can no longer fail is noticed.
package repocheck
