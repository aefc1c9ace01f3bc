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
)

// operation is one step of a JSON patch.
type operation struct {
	Op, Path, From string
	Value          any
}

// pointerPatch is RFC 6902.
func pointerPatch(original, patch []byte) ([]byte, error) {
	var doc any
	if err := json.Unmarshal(original, &doc); err != nil {
		return nil, err
	}
	var ops []operation
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	for i, op := range ops {
		var err error
		if doc, err = op.apply(doc); err != nil {
			return nil, fmt.Errorf("operation %d, %s %s: %w", i, op.Op, op.Path, err)
		}
	}
	return json.Marshal(doc)
}

func (op operation) apply(doc any) (any, error) {
	switch op.Op {
	case "add":
		return edit(doc, pointer(op.Path), func(any, bool) (any, verdict, error) { return op.Value, insert, nil })
	case "remove":
		return edit(doc, pointer(op.Path), func(_ any, ok bool) (any, verdict, error) { return nil, drop, missing(ok) })
	case "replace":
		return edit(doc, pointer(op.Path), func(_ any, ok bool) (any, verdict, error) { return op.Value, set, missing(ok) })
	case "test":
		return edit(doc, pointer(op.Path), func(v any, ok bool) (any, verdict, error) {
			if !ok || !reflect.DeepEqual(v, op.Value) {
				return nil, set, fmt.Errorf("testing value %v failed: it is %v", op.Value, v)
			}
			return v, set, nil
		})
	case "copy", "move":
		return op.carry(doc)
	default:
		return nil, fmt.Errorf("unknown operation %q", op.Op)
	}
}

// carry copies or moves a value.
func (op operation) carry(doc any) (any, error) {
	var value any
	doc, err := edit(doc, pointer(op.From), func(v any, ok bool) (any, verdict, error) {
		value = v
		if op.Op == "move" {
			return nil, drop, missing(ok)
		}
		return v, set, missing(ok)
	})
	if err != nil {
		return nil, err
	}
	return edit(doc, pointer(op.Path), func(any, bool) (any, verdict, error) { return value, insert, nil })
}

func missing(ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("there is nothing at the path")
}

func pointer(path string) []string {
	if path == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts
}

// verdict is what becomes of a place.
type verdict int

const (
	set verdict = iota
	insert
	drop
)

// edit returns a document in which what is at a path was replaced, inserted or removed.
func edit(doc any, path []string, change func(v any, ok bool) (any, verdict, error)) (any, error) {
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

func editMap(node map[string]any, path []string, change func(any, bool) (any, verdict, error)) (any, error) {
	child, ok := node[path[0]]
	if len(path) > 1 {
		if !ok {
			return nil, missing(false)
		}
		v, err := edit(child, path[1:], change)
		node[path[0]] = v
		return node, err
	}
	v, what, err := change(child, ok)
	if what == drop {
		delete(node, path[0])
	} else {
		node[path[0]] = v
	}
	return node, err
}

func editList(node []any, path []string, change func(any, bool) (any, verdict, error)) (any, error) {
	i := len(node)
	if path[0] != "-" {
		var err error
		if i, err = strconv.Atoi(path[0]); err != nil || i < 0 || i > len(node) {
			return nil, fmt.Errorf("index %q of a list of %d", path[0], len(node))
		}
	}
	if len(path) > 1 {
		if i == len(node) {
			return nil, missing(false)
		}
		v, err := edit(node[i], path[1:], change)
		node[i] = v
		return node, err
	}
	var child any
	if i < len(node) {
		child = node[i]
	}
	v, what, err := change(child, i < len(node))
	switch {
	case err != nil:
		return nil, err
	case what == insert:
		return slices.Insert(node, i, v), nil
	case i == len(node):
		return nil, missing(false)
	case what == drop:
		return slices.Delete(node, i, i+1), nil
	default:
		node[i] = v
		return node, nil
	}
}
