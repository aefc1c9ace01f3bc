// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import "strings"

// nestedManifests returns manifests with deeply nested values.
func nestedManifests(size int) []Manifest {
	var all []Manifest
	for _, n := range []struct{ name, open, closed string }{
		{"nested-lists", "[", "]"},
		{"nested-objects", "{a: ", "}"},
		{"nested-both", "[{a: ", "}]"},
		{"nested-blocks", "- ", ""},
		{"nested-keys", "? ", ""},
		{"nested-pairs", "[a: ", "]"},
		{"nested-json-lists", "[", "]"},
		{"nested-json-objects", `{"a":`, "}"},
	} {
		// As deep as size permits, and slightly below the maximum depth of YAML and JSON parsers.
		for suffix, levels := range map[string]int{"": size, "-allowed": 9_900} {
			levels = min(levels, size/len(n.open+n.closed))
			deep := strings.Repeat(n.open, levels) + "1" + strings.Repeat(n.closed, levels)
			text := podManifest("x", "", "", "    args:\n      "+deep+"\n")
			if strings.Contains(n.name, "json") {
				text = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":` + deep + "}"
			}
			all = append(all, Manifest{Name: n.name + suffix, Text: []byte(text)})
		}
	}
	return all
}
