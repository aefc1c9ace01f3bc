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

// document is one YAML document of a manifest.
type document struct {
	text   []byte
	before int // number of lines in the file before the document
}

// splitDocuments returns the YAML documents of a manifest that have content, at most maxDocuments+1. A line that begins with
// "---" always separates documents, also in a YAML value.
func splitDocuments(data []byte) []document {
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

// convertToJSON converts a document to JSON. It reports errors and returns false if the document is invalid or exceeds the
// decoding budget.
func (p *parser) convertToJSON(doc document) ([]byte, bool) {
	lines := bytes.Count(bytes.TrimSuffix(doc.text, []byte("\n")), []byte("\n")) + 1
	p.at = positions{before: doc.before, lines: lines, root: &yaml.Node{}}
	if json.Valid(doc.text) {
		if err := p.budget.JSON(doc.text); err != nil {
			p.reportConversionError(err)
			return nil, false
		}
		// JSON allows tabs between values, YAML does not. A JSON string contains no tab.
		_ = yaml.Unmarshal(bytes.ReplaceAll(doc.text, []byte("\t"), []byte(" ")), p.at.root)
		return doc.text, true
	}
	root, err := p.budget.YAML(doc.text)
	if err != nil {
		p.reportConversionError(preferKubeletError(doc.text, err))
		return nil, false
	}
	p.at.root = root
	// The kubelet's library reads yes, no, on and off as booleans.
	raw, err := kyaml.YAMLToJSON(doc.text)
	if err == nil {
		err = p.budget.JSON(raw)
	}
	if err != nil {
		p.reportConversionError(err)
		return nil, false
	}
	return raw, p.reportDuplicates(p.at.root, nil) == 0
}

// preferKubeletError returns the error of the kubelet's YAML library for the text, which has a more precise line number, or else
// err.
func preferKubeletError(text []byte, err error) error {
	// That library must not parse a text that is large or may expand by aliases.
	if _, ok := errors.AsType[*safeyaml.Error](err); ok || len(text) > 1<<20 || bytes.IndexByte(text, '*') >= 0 {
		return err
	}
	if _, other := kyaml.YAMLToJSON(text); other != nil {
		return other
	}
	return err
}

// reportConversionError reports err, the error of converting a document from YAML to JSON. It adds the line or the field if
// err contains it.
func (p *parser) reportConversionError(err error) {
	e, ok := errors.AsType[*safeyaml.Error](err)
	switch {
	case !ok:
		p.reportYAMLError(err)
	case e.Line > 0:
		p.reportLine(p.at.before+min(e.Line, p.at.lines), e.Path, e.Err)
	default:
		p.reportField(e.Path, e.Err)
	}
}

// reportYAMLError reports an error of a YAML parser. It takes the line number from the text of the error.
func (p *parser) reportYAMLError(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := p.at.lineOf("")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		text = text[len(m[0]):]
		// The library counts lines from 0 in this kind of error.
		if strings.HasPrefix(text, "did not find expected") {
			n++
		}
		line = p.at.before + min(n, p.at.lines)
	}
	p.reportLine(line, "", fmt.Errorf("parse YAML: %s", text))
}

// nodePath is the path of a YAML node, as a linked list of its elements from the node to the root. It becomes a string only for
// an error.
type nodePath struct {
	parent *nodePath
	name   string // field name, or index in brackets
}

func (l *nodePath) String() string {
	if l == nil {
		return ""
	}
	return joinPath(l.parent.String(), l.name)
}

// reportDuplicates reports each key that occurs twice in one mapping in or below the node, and returns their number.
func (p *parser) reportDuplicates(node *yaml.Node, path *nodePath) int {
	found := 0
	switch node.Kind {
	case yaml.DocumentNode:
		for _, c := range node.Content {
			found += p.reportDuplicates(c, path)
		}
	case yaml.SequenceNode:
		for i, c := range node.Content {
			found += p.reportDuplicates(c, &nodePath{parent: path, name: "[" + strconv.Itoa(i) + "]"})
		}
	case yaml.MappingNode:
		seen := make(map[string]int)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			field := &nodePath{parent: path, name: key.Value}
			if first, ok := seen[key.Value]; ok && key.Kind == yaml.ScalarNode {
				found++
				if !p.hasTooManyErrors() {
					p.reportLine(p.at.before+key.Line, field.String(), fmt.Errorf("duplicate field, first in line %d", p.at.before+first))
				}
			}
			seen[key.Value] = key.Line
			found += p.reportDuplicates(node.Content[i+1], field)
		}
	}
	return found
}

// positions finds the line of a field in a YAML document of a manifest.
type positions struct {
	root   *yaml.Node
	before int // number of lines in the file before the document
	lines  int // number of lines of the document
}

// lineOf returns the line number of a field, such as spec.containers[0].image, or of its nearest parent in the manifest.
func (p positions) lineOf(path string) int {
	node := p.root
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(node.Line, 1)
	for segment := range strings.FieldsFuncSeq(separatePath(path), func(r rune) bool { return r == separator }) {
		next, at := findChild(node, segment)
		if next == nil {
			break
		}
		node, line = next, at
	}
	// The parser also counts line breaks such as a lone carriage return, which other tools do not.
	return p.before + min(line, p.lines)
}

// separator separates the elements of a path. It cannot occur in a key.
const separator = '\x00'

// separatePath replaces dots and brackets between path elements by the rune separator. For example, a[b.c].d has the elements a,
// b.c and d.
func separatePath(path string) string {
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

// findChild returns the child of the node with this key or index, or nil, and its line.
func findChild(node *yaml.Node, segment string) (child *yaml.Node, line int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(segment); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == segment {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, 0
}

// joinPath appends an element or index to a field path. It adds a dot before an element.
func joinPath(path, rest string) string {
	if path == "" || rest == "" || rest[0] == '[' {
		return path + rest
	}
	return path + "." + rest
}
