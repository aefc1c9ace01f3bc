// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/hostile"
)

// nodes returns the number of nodes in the tree below n, including n and strings.
func nodes(n *yaml.Node) int {
	sum := 1
	for _, c := range n.Content {
		sum += nodes(c)
	}
	return sum
}

// A few kilobytes can expand to gigabytes. YAML refuses a document before its expansion, and an accepted document has no
// more values than were counted.
func FuzzYAML(f *testing.F) {
	for _, m := range hostile.All(3_000) {
		f.Add(m.Text)
	}
	f.Add([]byte("a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}\n"))
	f.Add([]byte("\xff\xfea\x00:\x00 \x00-\x00"))
	f.Add([]byte("- a\u2028- b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var tree yaml.Node
		if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&tree); err == nil {
			require.LessOrEqual(t, nodes(&tree), 3*countMarks(text)+4, "nodes are counted before memory is allocated for them")
		}
		b := NewBudget(len(text))
		if root, err := b.YAML(text); err != nil || root.IsZero() {
			return
		}
		raw, err := kyaml.YAMLToJSON(text)
		if err != nil {
			return
		}
		counted := b.maxBytes - b.bytes
		var found any
		require.NoError(t, json.Unmarshal(raw, &found))
		require.LessOrEqual(t, stringsIn(found), counted, "strings are counted before they are expanded")
		require.LessOrEqual(t, valuesIn(found), b.maxValues-b.nodes, "values are counted before they are expanded")
	})
}

// stringsIn returns the total size of the strings in v as JSON.
func stringsIn(v any) int {
	sum := 0
	switch v := v.(type) {
	case string:
		text, _ := json.Marshal(v)
		sum = len(text)
	case []any:
		for _, x := range v {
			sum += stringsIn(x)
		}
	case map[string]any:
		for key, x := range v {
			sum += stringsIn(key) + stringsIn(x)
		}
	}
	return sum
}

func valuesIn(v any) int {
	sum := 1
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			sum += valuesIn(x)
		}
	case map[string]any:
		for _, x := range v {
			sum += 1 + valuesIn(x)
		}
	}
	return sum
}

// Each error has the line or the path of its cause.
func TestYAMLErrorsHavePositions(t *testing.T) {
	for text, want := range map[string]string{
		"a: &a [*a]":                                                                         "line 1: an alias stands for something that holds it",
		"a: 1\nb: " + strings.Repeat("1", 2_000):                                             "line 2: a number of 2000 bytes, the limit is 1024",
		"a: 1\nb: " + strings.Repeat("x", MaxString):                                         "line 2: a string of 2097162 bytes, the limit is 2097152",
		"\n- [" + strings.Repeat("a,", MaxList+1) + "]":                                      "line 2: a list of more than 1000 elements",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1):                    "line 1: more than 100 lists and objects within each other",
		strings.Repeat("- ", 200_000):                                                        "more than 150000 characters in the file that could begin a value of YAML",
		"[" + strings.Repeat("["+strings.Repeat("a,", 999)+"],\n", 70) + "]":                 "line 50: more than 50000 values in the file",
		"a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 200) + "]": "line 2: more than 1069800 bytes of strings, with aliases expanded",
		"a: b\n--- \nc: d":                                                                   "more follows the end of the document",
		"a: \"b":                                                                             "yaml: found unexpected end of stream",
	} {
		_, err := NewBudget(len(text)).YAML([]byte(text))
		assert.ErrorContains(t, err, want)
	}
	root, err := NewBudget(0).YAML([]byte("# nothing\n"))
	require.NoError(t, err)
	assert.True(t, root.IsZero())
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	_, err = NewBudget(0).YAML([]byte(deep))
	assert.NoError(t, err)
	_, err = NewBudget(0).YAML([]byte("a: &a [1]\nb: [*a, *a]\nc: {<<: {d: *a}}\n"))
	assert.NoError(t, err)
}

// All documents of a file share one budget.
func TestBudgetIsSharedByDocuments(t *testing.T) {
	b := NewBudget(2 << 20)
	require.NoError(t, b.Spend(99_000))
	require.NoError(t, b.JSON([]byte("["+strings.Repeat("1,", 900)+"1]")))
	assert.Equal(t, 99_902, b.Spent())
	assert.EqualError(t, b.JSON([]byte("["+strings.Repeat("1,", 900)+"1]")), "[97]: more than 100000 values in the file")
	assert.EqualError(t, b.Spend(1), "more than 100000 values in the file")
	_, err := b.YAML([]byte("[" + strings.Repeat("1,", 900) + "1]"))
	require.NoError(t, err, "the budget is sufficient for a smaller YAML document")
	_, err = b.YAML([]byte("[" + strings.Repeat("1,", 900) + "1]"))
	assert.ErrorContains(t, err, "more than 100000 values in the file")
}
