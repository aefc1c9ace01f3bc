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

// Glossary is a list of words that must not come back, each with the one that is said instead. A text of these lines makes
// one ([ParseGlossary]):
//
//	PATTERN => WORD
//
// A pattern is a regular expression for whole words, in capitals or not; a blank in it stands for any white space, the
// end of a line of a comment too. What follows a "#" is a remark.
type Glossary struct {
	entries []entry
	all     *regexp.Regexp // any of the patterns, which is quicker than each
}

// entry is one line of a [Glossary].
type entry struct {
	pattern *regexp.Regexp
	say     string
}

// ParseGlossary reads the text of a glossary. An error names the line.
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
		g.entries = append(g.entries, entry{compiled, say})
	}
	all, err := regexp.Compile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	if err != nil {
		return nil, fmt.Errorf("parse glossary: %w", err)
	}
	g.all = all
	return g, nil
}

// Check complains about every word that is on the list: in the comments, strings, names and file names of Go, and in
// Markdown. Test data is left out, and so are the files that are named.
func (g *Glossary) Check(t *Tree, except ...string) (found []Complaint) {
	for i := range t.Files {
		f := &t.Files[i]
		if slices.Contains(except, f.Path) || f.Go == nil && !f.markdown() {
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
			g.find(split(strings.TrimSuffix(path.Base(f.Path), ".go")), func(_ int, say, words string) { complain(0, say, words) })
		}
		g.find(text, func(at int, say, words string) { complain(1+strings.Count(text[:at], "\n"), say, words) })
		g.checkNames(t, f, complain)
	}
	return found
}

// find calls complain with each place in a text where one of the patterns is, and the words there.
func (g *Glossary) find(text string, complain func(at int, say, words string)) {
	if !g.all.MatchString(text) {
		return
	}
	for i := range g.entries {
		e := &g.entries[i]
		for _, at := range e.pattern.FindAllStringIndex(text, -1) {
			complain(at[0], e.say, text[at[0]:at[1]])
		}
	}
}

// commentMark is what a line of a comment begins with.
var commentMark = regexp.MustCompile(`(?m)^([ \t]*)//`)

// markdown reports whether a file is documentation outside of the code.
func (f *File) markdown() bool {
	return strings.HasSuffix(f.Path, ".md") && !slices.Contains(strings.Split(f.Path, "/"), "testdata")
}

// checkNames looks at each name in a Go file where it comes first.
func (g *Glossary) checkNames(t *Tree, f *File, complain func(line int, say, words string)) {
	if f.Go == nil {
		return
	}
	known := map[string]bool{}
	ast.Inspect(f.Go, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !known[id.Name] {
			known[id.Name] = true
			g.find(split(id.Name), func(_ int, say, _ string) { complain(t.fset.Position(id.Pos()).Line, say, id.Name) })
		}
		return true
	})
}

// split returns the words of a name, such as "exit Code" for exitCode and for exit_Code.
func split(name string) string {
	return wordStart.ReplaceAllString(strings.ReplaceAll(name, "_", " "), "$1$3 $2$4")
}

// wordStart is where one word of a name ends and another begins: before a capital that follows no capital, and before the
// last of several capitals.
var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
