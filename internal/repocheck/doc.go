// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package repocheck implements the rules of this repository as functions over its source, for the tests in the root directory. It
// changes no file, and checks files and imports one by one, not the behaviour of the program.
//
//	tree, err := repocheck.Load(os.DirFS("."))
//	for _, rule := range repocheck.Rules() {
//		for _, c := range rule.Check(tree) {
//			fmt.Println(c)
//		}
//	}
//
// [Load] reads a repository into a [Tree]. A [Rule] returns a [Complaint] for each violation in a tree; [Rules] lists the rules.
// Three more rules are parsed from text: a [Policy] defines which package may import which packages and how many third-party
// packages it may depend on, [Sizes] limits the lines of files, and a [Glossary] lists forbidden words.
//
// Every rule has a test with an intentional violation, so that a rule that finds nothing is noticed.
package repocheck
