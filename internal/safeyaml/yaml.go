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

// YAML parses one YAML document within the budget, which it reduces by the nodes and strings with aliases expanded. A second
// document or an exceeded budget is an error. For an empty text, the Kind of the node is zero.
func (b *Budget) YAML(text []byte) (*yaml.Node, error) {
	b.marks -= countMarks(text)
	if b.marks < 0 {
		return nil, &Error{Err: fmt.Errorf("more than %d characters in the file that could begin a value of YAML, such as %q", marksPerValue*b.maxValues, ",[{:-")}
	}
	root := &yaml.Node{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(root); errors.Is(err, io.EOF) {
		return root, nil
	} else if err != nil {
		return nil, err
	}
	e := expansion{budget: b, anchored: make(map[*yaml.Node]nodeWeight)}
	if err := e.addNode(root, 0); err != nil {
		return nil, err
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New(`more follows the end of the document, but no line "---"`)
	}
	return root, nil
}

// countMarks returns an upper limit for the cost of parsing text: the characters that can begin a YAML node, even in
// strings.
func countMarks(text []byte) int {
	n := 0
	for i, c := range text {
		// A document has at most three nodes per mark, and one more. A comment takes the memory of several nodes.
		switch c {
		case ',', '[', '{', ':', '?':
			n++
		case '-':
			if i+1 == len(text) || !isWordByte(text[i+1]) {
				n++
			}
		case '#':
			n += 4
		}
	}
	return n
}

// isWordByte reports whether a dash before char belongs to a word. Otherwise it may begin a list element.
func isWordByte(char byte) bool {
	// Other bytes may be white space, such as a Unicode line break or a zero byte of UTF-16.
	return char == '-' || char == '.' || char == '_' || char == '/' || '0' <= char && char <= '9' || 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z'
}

// nodeWeight is the size of a part of a document: its nodes, and the bytes of its strings.
type nodeWeight struct{ nodes, bytes int }

// expansion sums up the size of a document in which each alias is replaced by its anchored node.
type expansion struct {
	budget   *Budget
	anchored map[*yaml.Node]nodeWeight // sizes of anchored nodes that were added completely
}

// addNode reduces the budget by n and its children, with aliases expanded, within the limits. depth counts the enclosing
// nodes.
func (e *expansion) addNode(n *yaml.Node, depth int) error {
	before := nodeWeight{e.budget.nodes, e.budget.bytes}
	cost, err := e.nodeCost(n)
	e.budget.nodes -= cost.nodes
	e.budget.bytes -= cost.bytes
	switch {
	case err != nil:
	case depth > MaxDepth && n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode: // the document itself is a node, too
		err = fmt.Errorf("more than %d lists and objects within each other", MaxDepth)
	case e.budget.nodes < 0:
		err = e.budget.tooManyValues()
	case e.budget.bytes < 0:
		err = fmt.Errorf("more than %d bytes of strings, with aliases expanded", e.budget.maxBytes)
	case n.Kind == yaml.SequenceNode && len(n.Content) > MaxList:
		err = fmt.Errorf("a list of more than %d elements", MaxList)
	}
	if err != nil {
		return &Error{Line: n.Line, Err: err}
	}
	for _, c := range n.Content {
		if n.Kind == yaml.SequenceNode && c.Kind == yaml.MappingNode {
			e.budget.nodes -= listElementCost
		}
		if err := e.addNode(c, depth+1); err != nil {
			return err
		}
	}
	if n.Anchor != "" && n.Kind != yaml.AliasNode {
		e.anchored[n] = nodeWeight{before.nodes - e.budget.nodes, before.bytes - e.budget.bytes}
	}
	return nil
}

// nodeCost returns the cost of a node without the cost of its children. An alias costs as much as its anchored node
// including the children of that node.
func (e *expansion) nodeCost(node *yaml.Node) (nodeWeight, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		cost := nodeWeight{1, maxJSONLength(node.Value)}
		if node.Style&yaml.TaggedStyle != 0 {
			cost.bytes = 6*len(node.Value) + 10 // for example binary data, which JSON escapes
		}
		if node.Style == 0 && strings.Trim(node.Value, "+-._0123456789eE") == "" {
			return cost, checkLength("number", len(node.Value), MaxNumber)
		}
		return cost, checkLength("string", cost.bytes, MaxString)
	case yaml.AliasNode:
		cost, ok := e.anchored[node.Alias]
		if !ok {
			return cost, errors.New("an alias stands for something that holds it")
		}
		return cost, nil
	}
	return nodeWeight{nodes: 1}, nil
}

// maxJSONLength returns an upper limit for the length of a scalar in JSON, in bytes.
func maxJSONLength(text string) int {
	// The key y becomes "true".
	n := len(text) + 10
	for i, r := range text {
		switch {
		case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
			n += 5
		case r == '"', r == '\\':
			n++
		case r == utf8.RuneError && text[i] != 0xEF: // not valid UTF-8
			n += 5
		}
	}
	return n
}
