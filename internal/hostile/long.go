// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import "strings"

// longManifests returns manifests with one very long value, such as a name or a number. Each manifest is about size bytes
// long.
func longManifests(size int) []Manifest {
	x := func(s string) string { return strings.Repeat(s, max(1, (size-1_000)/len(s))) }
	hook := "lifecycle: {preStop: {exec: {command: [sh, -c, " + strings.Repeat("x", max(1, size/4-500)) + "]}}}\n"
	hooks := strings.ReplaceAll(repeatNumbered("  - name: c%d\n    image: i\n    HOOK", 90), "HOOK", hook)
	children := repeatNumbered("k%d: b,", size/2)
	texts := map[string]string{
		"long-name":                     strings.Replace(podManifest("x", "", "", ""), "name: x", "name: "+x("x"), 1),
		"long-kind":                     strings.Replace(podManifest("x", "", "", ""), "kind: Pod", "kind: "+x("x"), 1),
		"long-version":                  strings.Replace(podManifest("x", "", "", ""), "apiVersion: v1", "apiVersion: ["+x("1,")+"]", 1),
		"long-image":                    strings.Replace(podManifest("x", "", "", ""), "image: i", "image: "+x("x/"), 1),
		"long-argument":                 podManifest("x", "", "", "    args: ["+x("x")+"]\n"),
		"long-argument-quoted":          podManifest("x", "", "", "    args: [\""+x("<")+"\"]\n"),
		"long-argument-literal":         podManifest("x", "", "", "    args:\n    - |\n"+x("      [,{:-?\n")),
		"long-argument-of-lines":        podManifest("x", "", "", "    args:\n    - a\n"+x("      [,{:-?\n")),
		"long-annotation":               podManifest("x", "  annotations: {a: "+x("x")+"}\n", "", ""),
		"long-hooks":                    podManifest("x", "", "", "    "+hook+hooks),
		"long-key":                      podManifest("x", "  labels: {"+x("x")+": b}\n", "", ""),
		"long-key-of-many":              podManifest("x", "", "", "    "+strings.Repeat("x", size/2)+": {"+children+"}\n"),
		"long-number":                   podManifest("x", "", "  priority: "+x("1")+"\n", ""),
		"long-number-in-quantity":       podManifest("x", "", "", "    resources: {limits: {cpu: "+x("1")+"}}\n"),
		"long-string-in-quantity":       podManifest("x", "", "", "    resources: {limits: {cpu: '"+x("1")+"'}}\n"),
		"long-fraction-in-quantity":     podManifest("x", "", "", "    resources: {limits: {cpu: '0."+x("0")+"1'}}\n"),
		"long-json-number":              `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":` + x("1") + "}}}]}}",
		"long-line-of-blanks":           podManifest("x", "", "", x(" ")+"y: z\n"),
		"long-line-of-a-comment":        podManifest("x", "", "", "# "+x("x")+"\n    y: z\n"),
		"long-string-that-does-not-end": podManifest("x", "", "", "    args: [\""+x("x")),
		"long-unicode-escapes":          podManifest("x", "", "", "    args: [\""+x("\\x01")+"\"]\n"),
		"long-binary":                   podManifest("x", "", "", "    args: [!!binary "+x("AAAA")+"]\n"),
		"long-tag":                      podManifest("x", "", "", "    args: [!"+x("x")+" a]\n"),
		"long-anchor":                   podManifest("x", "", "", "    args: [&"+x("x")+" a]\n"),
	}
	var all []Manifest
	for name, text := range texts {
		// With a small size, some of these are ordinary pods.
		all = append(all, Manifest{Name: name, Text: []byte(text), Fine: size < 3<<20 || name == "long-anchor" || name == "long-tag"})
	}
	return all
}
