// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Glossary is a list of forbidden words with their replacements. [ParseGlossary] reads it from a text of these lines:
//
//	PATTERN => WORD
//
// PATTERN is a regular expression for whole words, case-insensitive. A blank in it matches any white space, including a line
// break in a comment. Text after "#" is a comment.
type Glossary struct {
	entries []glossaryEntry
	all     *regexp.Regexp // matches any of the patterns, which is faster than each
}

// glossaryEntry is one line of a [Glossary].
type glossaryEntry struct {
	pattern     *regexp.Regexp
	replacement string
}

// ParseGlossary parses the text of a [Glossary]. An error contains the number of the invalid line.
func ParseGlossary(text string) (*Glossary, error) {
	g := new(Glossary)
	var patterns []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		pattern, say, ok := strings.Cut(line, "=>")
		pattern, say = strings.TrimSpace(pattern), strings.TrimSpace(say)
		if !ok || pattern == "" || say == "" {
			return nil, fmt.Errorf("parse glossary: line %d: %q is no pattern and a word", number, strings.TrimSpace(line))
		}
		pattern = strings.Join(strings.Fields(pattern), `\s+`)
		compiled, err := regexp.Compile(`(?i)\b(?:` + pattern + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("parse glossary: line %d: %w", number, err)
		}
		patterns = append(patterns, pattern)
		g.entries = append(g.entries, glossaryEntry{compiled, say})
	}
	all, err := regexp.Compile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	if err != nil {
		return nil, fmt.Errorf("parse glossary: %w", err)
	}
	g.all = all
	return g, nil
}

// Check reports each forbidden word in the Go and Markdown files of t: in comments, strings, identifiers and file names. It
// skips test data and the files whose paths are in except.
func (g *Glossary) Check(t *Tree, except ...string) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		if slices.Contains(except, f.Path) || f.Go == nil && !f.isMarkdown() {
			continue
		}
		seen := map[Complaint]bool{}
		complain := func(line int, say, words string) {
			c := Complaint{f.Path, line, fmt.Sprintf("%q: say %s", strings.Join(strings.Fields(words), " "), say)}
			if place := (Complaint{Path: say, Line: line}); !seen[place] {
				seen[place] = true
				found = append(found, c)
			}
		}
		text := f.Text
		if f.Go != nil {
			text = commentMark.ReplaceAllString(text, "$1  ")
			g.findWords(splitName(strings.TrimSuffix(path.Base(f.Path), ".go")), func(_ int, say, words string) { complain(0, say, words) })
		}
		g.findWords(text, func(at int, say, words string) { complain(1+strings.Count(text[:at], "\n"), say, words) })
		g.checkNames(t, f, complain)
	}
	return found
}

// findWords calls complain for each forbidden word in text. It passes the offset of the word, its replacement, and the text
// that matched.
func (g *Glossary) findWords(text string, complain func(at int, say, words string)) {
	if !g.all.MatchString(text) {
		return
	}
	for i := range g.entries {
		e := &g.entries[i]
		for _, at := range e.pattern.FindAllStringIndex(text, -1) {
			complain(at[0], e.replacement, text[at[0]:at[1]])
		}
	}
}

// commentMark matches the start of a comment line.
var commentMark = regexp.MustCompile(`(?m)^([ \t]*)//`)

// isMarkdown reports whether f is a Markdown file, but not test data.
func (f *File) isMarkdown() bool {
	return strings.HasSuffix(f.Path, ".md") && !slices.Contains(strings.Split(f.Path, "/"), "testdata")
}

// checkNames calls complain once for each identifier in the Go file f that contains a forbidden word.
func (g *Glossary) checkNames(t *Tree, f *File, complain func(line int, say, words string)) {
	if f.Go == nil {
		return
	}
	known := map[string]bool{}
	ast.Inspect(f.Go, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !known[id.Name] {
			known[id.Name] = true
			g.findWords(splitName(id.Name), func(_ int, say, _ string) { complain(t.fset.Position(id.Pos()).Line, say, id.Name) })
		}
		return true
	})
}

// splitName separates the words of an identifier by spaces. For example, it returns "exit Code" for exitCode and for
// exit_Code.
func splitName(name string) string {
	return wordStart.ReplaceAllString(strings.ReplaceAll(name, "_", " "), "$1$3 $2$4")
}

// wordStart matches the boundary of two words in an identifier: before a capital after a small letter, and before the last of
// several capitals.
var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
