// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// YAML parses one document, and returns an error where it is not one, or more than one, or where it would expand to
// more than is left of the budget. The errors of the parser are returned as they are. A text without any value is a node
// of no kind.
func (b *Budget) YAML(text []byte) (*yaml.Node, error) {
	b.marks -= marks(text)
	if b.marks < 0 {
		return nil, &Error{Err: fmt.Errorf("more than %d characters in the file that could begin a value of YAML, such as %q", marksPerValue*b.most, ",[{:-")}
	}
	root := &yaml.Node{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(root); errors.Is(err, io.EOF) {
		return root, nil
	} else if err != nil {
		return nil, err
	}
	e := expansion{budget: b, anchored: make(map[*yaml.Node]weight)}
	if err := e.add(root, 0); err != nil {
		return nil, err
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New(`more follows the end of the document, but no line "---"`)
	}
	return root, nil
}

// marks counts the characters that can begin a node, in the text as if there were no strings in it: there are never
// more than three nodes for one of them, and one more. A comment takes the memory of some nodes.
func marks(text []byte) int {
	n := 0
	for i, c := range text {
		switch c {
		case ',', '[', '{', ':', '?':
			n++
		case '-':
			if i+1 == len(text) || !inWord(text[i+1]) {
				n++
			}
		case '#':
			n += 4
		}
	}
	return n
}

// inWord reports whether a dash before the character is part of a word. Line breaks of Unicode and the zero bytes of
// UTF-16 count as blanks.
func inWord(c byte) bool {
	return c == '-' || c == '.' || c == '_' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// weight is what a part of a document expands to.
type weight struct{ nodes, bytes int }

// expansion adds up what a document expands to when each alias is replaced by what it stands for.
type expansion struct {
	budget   *Budget
	anchored map[*yaml.Node]weight // once all of it is known
}

func (e *expansion) add(n *yaml.Node, depth int) error {
	before := weight{e.budget.nodes, e.budget.bytes}
	cost, err := e.alone(n)
	e.budget.nodes -= cost.nodes
	e.budget.bytes -= cost.bytes
	switch {
	case err != nil:
	case depth > MaxDepth && n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode: // the document is a node, too
		err = fmt.Errorf("more than %d lists and objects within each other", MaxDepth)
	case e.budget.nodes < 0:
		err = e.budget.tooMany()
	case e.budget.bytes < 0:
		err = fmt.Errorf("more than %d bytes of strings, with aliases expanded", e.budget.limit)
	case n.Kind == yaml.SequenceNode && len(n.Content) > MaxList:
		err = fmt.Errorf("a list of more than %d elements", MaxList)
	}
	if err != nil {
		return &Error{Line: n.Line, Err: err}
	}
	for _, c := range n.Content {
		if n.Kind == yaml.SequenceNode && c.Kind == yaml.MappingNode {
			e.budget.nodes -= inList
		}
		if err := e.add(c, depth+1); err != nil {
			return err
		}
	}
	if n.Anchor != "" && n.Kind != yaml.AliasNode {
		e.anchored[n] = weight{before.nodes - e.budget.nodes, before.bytes - e.budget.bytes}
	}
	return nil
}

// alone returns what a node expands to without its children, or what an alias expands to with those.
func (e *expansion) alone(n *yaml.Node) (weight, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		cost := weight{1, inJSON(n.Value)}
		if n.Style&yaml.TaggedStyle != 0 {
			cost.bytes = 6*len(n.Value) + 10 // such as what is binary, which JSON escapes
		}
		if n.Style == 0 && strings.Trim(n.Value, "+-._0123456789eE") == "" {
			return cost, checkLength("number", len(n.Value), MaxNumber)
		}
		return cost, checkLength("string", cost.bytes, MaxString)
	case yaml.AliasNode:
		cost, ok := e.anchored[n.Alias]
		if !ok {
			return cost, errors.New("an alias stands for something that holds it")
		}
		return cost, nil
	}
	return weight{nodes: 1}, nil
}

// inJSON returns how long a string is in JSON at most. Some characters become six, and a key y becomes "true".
func inJSON(s string) int {
	n := len(s) + 10
	for i, r := range s {
		switch {
		case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
			n += 5
		case r == '"', r == '\\':
			n++
		case r == utf8.RuneError && s[i] != 0xEF: // not valid UTF-8
			n += 5
		}
	}
	return n
}
