// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// document is one of the documents of a manifest.
type document struct {
	text   []byte
	before int // lines of the file before it
}

// split parts a manifest at its "---" lines, and leaves out documents without content. A line of that form is never
// part of a value in YAML. It returns one document more than there may be at most.
func split(data []byte) []document {
	var docs []document
	start, before, content := 0, 0, false
	end := func(at int) {
		if content {
			docs = append(docs, document{text: data[start:at], before: before})
		}
	}
	offset, n := 0, 0
	for line := range bytes.Lines(data) {
		if len(docs) > maxDocuments {
			return docs
		}
		separator := bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
		if separator && content {
			end(offset)
			start, before, content = offset, n, false
		}
		text := line
		if separator {
			text = line[3:]
		}
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
		content = content || len(text) > 0 && text[0] != '#' && text[0] != '%' && string(text) != "..."
		offset += len(line)
		n++
	}
	end(len(data))
	return docs
}

// convert turns a document into JSON that costs no more to decode than the budget allows. YAML is read by the rules of
// the kubelet's library, in which yes, no, on and off are booleans; a second parser comes first, which bounds what the
// document expands to and tells where things are.
func (p *parser) convert(d document) ([]byte, bool) {
	lines := bytes.Count(bytes.TrimSuffix(d.text, []byte("\n")), []byte("\n")) + 1
	p.at = positions{before: d.before, lines: lines, root: &yaml.Node{}}
	if json.Valid(d.text) {
		if err := p.budget.JSON(d.text); err != nil {
			p.failBounds(err)
			return nil, false
		}
		// JSON allows tabs between values, where YAML does not. Inside of strings it allows none.
		_ = yaml.Unmarshal(bytes.ReplaceAll(d.text, []byte("\t"), []byte(" ")), p.at.root)
		return d.text, true
	}
	root, err := p.budget.YAML(d.text)
	if err != nil {
		p.failBounds(sameError(d.text, err))
		return nil, false
	}
	p.at.root = root
	raw, err := kyaml.YAMLToJSON(d.text)
	if err == nil {
		err = p.budget.JSON(raw)
	}
	if err != nil {
		p.failBounds(err)
		return nil, false
	}
	return raw, p.duplicates(p.at.root, nil) == 0
}

// sameError returns the error of the kubelet's library in place of that of the other parser, as its line is the better
// one, where nothing in the text can expand.
func sameError(text []byte, err error) error {
	if _, ok := errors.AsType[*safeyaml.Error](err); ok || len(text) > 1<<20 || bytes.IndexByte(text, '*') >= 0 {
		return err
	}
	if _, other := kyaml.YAMLToJSON(text); other != nil {
		return other
	}
	return err
}

// failBounds reports why a document is not decoded: it is not YAML, or it is too much.
func (p *parser) failBounds(err error) {
	e, ok := errors.AsType[*safeyaml.Error](err)
	switch {
	case !ok:
		p.failYAML(err)
	case e.Line > 0:
		p.report(p.at.before+min(e.Line, p.at.lines), e.Path, e.Err)
	default:
		p.fail(e.Path, e.Err)
	}
}

// failYAML reports an error of a YAML parser, which names a line of the document in its text.
func (p *parser) failYAML(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := p.at.line("")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		text = text[len(m[0]):]
		// The library counts the lines of this one kind of error from 0.
		if strings.HasPrefix(text, "did not find expected") {
			n++
		}
		line = p.at.before + min(n, p.at.lines)
	}
	p.report(line, "", fmt.Errorf("parse YAML: %s", text))
}

// place is where a node is, from the inside out: a path is made of it only when there is an error to report.
type place struct {
	in   *place
	name string // of a field, or an index in brackets
}

func (l *place) String() string {
	if l == nil {
		return ""
	}
	return join(l.in.String(), l.name)
}

// duplicates reports keys that a mapping has twice, and returns how many.
func (p *parser) duplicates(n *yaml.Node, at *place) int {
	found := 0
	switch n.Kind {
	case yaml.DocumentNode:
		for _, c := range n.Content {
			found += p.duplicates(c, at)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			found += p.duplicates(c, &place{in: at, name: "[" + strconv.Itoa(i) + "]"})
		}
	case yaml.MappingNode:
		seen := make(map[string]int)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			field := &place{in: at, name: key.Value}
			if first, ok := seen[key.Value]; ok && key.Kind == yaml.ScalarNode {
				found++
				if !p.full() {
					p.report(p.at.before+key.Line, field.String(), fmt.Errorf("duplicate field, first in line %d", p.at.before+first))
				}
			}
			seen[key.Value] = key.Line
			found += p.duplicates(n.Content[i+1], field)
		}
	}
	return found
}

// positions finds the lines of fields in a document.
type positions struct {
	root   *yaml.Node
	before int // lines of the file before the document
	lines  int // of the document
}

// line returns the line of a field such as spec.containers[0].image, or of the deepest part of the path that is there.
func (p positions) line(path string) int {
	node := p.root
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(node.Line, 1)
	for segment := range strings.FieldsFuncSeq(bracketed(path), func(r rune) bool { return r == separator }) {
		next, at := child(node, segment)
		if next == nil {
			break
		}
		node, line = next, at
	}
	// The parser also counts line breaks that other tools do not, such as a lone carriage return.
	return p.before + min(line, p.lines)
}

// separator parts the segments of a path. It cannot occur in a key.
const separator = '\x00'

// bracketed replaces the dots and brackets between the segments of a path by separators: a[b.c].d is a, b.c and d.
func bracketed(path string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch {
		case r == '[':
			depth++
			return separator
		case r == ']':
			depth--
			return separator
		case r == '.' && depth <= 0:
			return separator
		}
		return r
	}, path)
}

// child returns the value of a key or index, and the line where it begins.
func child(n *yaml.Node, segment string) (*yaml.Node, int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(segment); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == segment {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	}
	return nil, 0
}

// join appends to a path.
func join(path, rest string) string {
	if path == "" || rest == "" || rest[0] == '[' {
		return path + rest
	}
	return path + "." + rest
}
