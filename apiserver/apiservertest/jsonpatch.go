// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// applyJSONPatch applies a JSON patch (RFC 6902) to a JSON document, and returns the resulting document. Integers of 64 bits
// keep their exact values.
func applyJSONPatch(original, patch []byte) ([]byte, error) {
	var doc any
	if err := utiljson.Unmarshal(original, &doc); err != nil {
		return nil, err
	}
	var ops []operation
	if err := utiljson.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	for i, op := range ops {
		var err error
		if doc, err = op.applyTo(doc); err != nil {
			return nil, fmt.Errorf("operation %d, %s %s: %w", i, op.Op, op.Path, err)
		}
	}
	return json.Marshal(doc)
}

// applyTo applies the patch operation to a document, and returns the resulting document. It may change the given document.
func (op operation) applyTo(doc any) (any, error) {
	switch op.Op {
	case "add":
		return editPath(doc, parsePointer(op.Path), func(any, bool) (any, editAction, error) { return op.Value, insertValue, nil })
	case "remove":
		return editPath(doc, parsePointer(op.Path), func(_ any, ok bool) (any, editAction, error) { return nil, removeValue, checkExists(ok) })
	case "replace":
		return editPath(doc, parsePointer(op.Path), func(_ any, ok bool) (any, editAction, error) { return op.Value, setValue, checkExists(ok) })
	case "test":
		return editPath(doc, parsePointer(op.Path), func(v any, ok bool) (any, editAction, error) {
			if !ok || !reflect.DeepEqual(v, op.Value) {
				return nil, setValue, fmt.Errorf("testing value %v failed: it is %v", op.Value, v)
			}
			return v, setValue, nil
		})
	case "copy", "move":
		return op.copyOrMove(doc)
	default:
		return nil, fmt.Errorf("unknown operation %q", op.Op)
	}
}

// copyOrMove applies a copy or move operation to doc.
func (op operation) copyOrMove(doc any) (any, error) {
	var value any
	doc, err := editPath(doc, parsePointer(op.From), func(v any, ok bool) (any, editAction, error) {
		value = v
		if op.Op == "move" {
			return nil, removeValue, checkExists(ok)
		}
		return v, setValue, checkExists(ok)
	})
	if err != nil {
		return nil, err
	}
	return editPath(doc, parsePointer(op.Path), func(any, bool) (any, editAction, error) { return value, insertValue, nil })
}

// checkExists returns nil if ok is true. Otherwise it returns the error that the path of a patch operation does not exist.
func checkExists(ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("the path does not exist")
}

// parsePointer splits a JSON pointer (RFC 6901) into its parts, and unescapes them.
func parsePointer(path string) []string {
	if path == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts
}

// editAction is the effect of an operation on the value at its path.
type editAction int

const (
	setValue editAction = iota
	insertValue
	removeValue
)

// editPath returns the document in which change has set, inserted or removed the value at the path.
func editPath(doc any, path []string, change func(old any, exists bool) (value any, action editAction, err error)) (any, error) {
	if len(path) == 0 {
		v, _, err := change(doc, true)
		return v, err
	}
	switch node := doc.(type) {
	case map[string]any:
		return editMap(node, path, change)
	case []any:
		return editList(node, path, change)
	default:
		return nil, fmt.Errorf("%q is in no object and in no list", path[0])
	}
}

func editMap(node map[string]any, path []string, change func(any, bool) (any, editAction, error)) (any, error) {
	child, ok := node[path[0]]
	if len(path) > 1 {
		if !ok {
			return nil, checkExists(false)
		}
		v, err := editPath(child, path[1:], change)
		node[path[0]] = v
		return node, err
	}
	v, action, err := change(child, ok)
	if action == removeValue {
		delete(node, path[0])
	} else {
		node[path[0]] = v
	}
	return node, err
}

func editList(node []any, path []string, change func(any, bool) (any, editAction, error)) (any, error) {
	i := len(node)
	if path[0] != "-" {
		var err error
		if i, err = strconv.Atoi(path[0]); err != nil || i < 0 || i > len(node) {
			return nil, fmt.Errorf("index %q of a list of %d", path[0], len(node))
		}
	}
	if len(path) > 1 {
		if i == len(node) {
			return nil, checkExists(false)
		}
		v, err := editPath(node[i], path[1:], change)
		node[i] = v
		return node, err
	}
	var child any
	if i < len(node) {
		child = node[i]
	}
	v, action, err := change(child, i < len(node))
	switch {
	case err != nil:
		return nil, err
	case action == insertValue:
		return slices.Insert(node, i, v), nil
	case i == len(node):
		return nil, checkExists(false)
	case action == removeValue:
		return slices.Delete(node, i, i+1), nil
	default:
		node[i] = v
		return node, nil
	}
}
