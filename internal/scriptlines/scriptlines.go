// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package scriptlines splits and executes scripts: each line is a command, and the marked lines below it are its output. Unlike
// package script it defines no flag, so that a package for programs may import it.
//
// Test kit: none is needed; the functions are pure.
package scriptlines

import (
	"regexp"
	"strings"
)

// sectionTitle matches the first line of a section of a script file.
var sectionTitle = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// Section is a part of a script file.
type Section struct {
	Title  string // empty: the text before the first title
	Header string // line of the title; empty without a title
	Text   string // without the header
	// HasTitles means that the file has titles: a section without a title is then the comment of the file, and no script.
	HasTitles bool
}

// Sections splits the content of a file into its scripts. A file is a single script, or a comment followed by scripts that
// each start with a line "-- NAME --".
func Sections(text string) (sections []Section) {
	titles, parts := sectionTitle.FindAllStringSubmatch(text, -1), sectionTitle.Split(text, -1)
	sections = append(sections, Section{Text: parts[0], HasTitles: len(titles) > 0})
	for i, title := range titles {
		sections = append(sections, Section{Title: title[1], Header: title[0], Text: parts[i+1], HasTitles: true})
	}
	return sections
}

// Lines executes a script line by line, and returns it with the actual output. For each command it calls do with the words
// of the line, which writes the output to out. Lines that start with mark are old output and dropped. Blank lines and
// comments, which start with "#", are copied.
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
