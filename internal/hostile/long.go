// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import "strings"

// long returns manifests of few things that are very long.
func long(size int) []Manifest {
	x := func(s string) string { return strings.Repeat(s, max(1, (size-1_000)/len(s))) }
	hook := "lifecycle: {preStop: {exec: {command: [sh, -c, " + strings.Repeat("x", max(1, size/4-500)) + "]}}}\n"
	hooks := strings.ReplaceAll(numbered("  - name: c%d\n    image: i\n    HOOK", 90), "HOOK", hook)
	children := numbered("k%d: b,", size/2)
	texts := map[string]string{
		"long-name":                     strings.Replace(pod("x", "", "", ""), "name: x", "name: "+x("x"), 1),
		"long-kind":                     strings.Replace(pod("x", "", "", ""), "kind: Pod", "kind: "+x("x"), 1),
		"long-version":                  strings.Replace(pod("x", "", "", ""), "apiVersion: v1", "apiVersion: ["+x("1,")+"]", 1),
		"long-image":                    strings.Replace(pod("x", "", "", ""), "image: i", "image: "+x("x/"), 1),
		"long-argument":                 pod("x", "", "", "    args: ["+x("x")+"]\n"),
		"long-argument-quoted":          pod("x", "", "", "    args: [\""+x("<")+"\"]\n"),
		"long-argument-literal":         pod("x", "", "", "    args:\n    - |\n"+x("      [,{:-?\n")),
		"long-argument-of-lines":        pod("x", "", "", "    args:\n    - a\n"+x("      [,{:-?\n")),
		"long-annotation":               pod("x", "  annotations: {a: "+x("x")+"}\n", "", ""),
		"long-hooks":                    pod("x", "", "", "    "+hook+hooks),
		"long-key":                      pod("x", "  labels: {"+x("x")+": b}\n", "", ""),
		"long-key-of-many":              pod("x", "", "", "    "+strings.Repeat("x", size/2)+": {"+children+"}\n"),
		"long-number":                   pod("x", "", "  priority: "+x("1")+"\n", ""),
		"long-number-in-quantity":       pod("x", "", "", "    resources: {limits: {cpu: "+x("1")+"}}\n"),
		"long-string-in-quantity":       pod("x", "", "", "    resources: {limits: {cpu: '"+x("1")+"'}}\n"),
		"long-fraction-in-quantity":     pod("x", "", "", "    resources: {limits: {cpu: '0."+x("0")+"1'}}\n"),
		"long-json-number":              `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":` + x("1") + "}}}]}}",
		"long-line-of-blanks":           pod("x", "", "", x(" ")+"y: z\n"),
		"long-line-of-a-comment":        pod("x", "", "", "# "+x("x")+"\n    y: z\n"),
		"long-string-that-does-not-end": pod("x", "", "", "    args: [\""+x("x")),
		"long-unicode-escapes":          pod("x", "", "", "    args: [\""+x("\\x01")+"\"]\n"),
		"long-binary":                   pod("x", "", "", "    args: [!!binary "+x("AAAA")+"]\n"),
		"long-tag":                      pod("x", "", "", "    args: [!"+x("x")+" a]\n"),
		"long-anchor":                   pod("x", "", "", "    args: [&"+x("x")+" a]\n"),
	}
	var all []Manifest
	for name, text := range texts {
		// Where size is small, a part of these is a pod like others.
		all = append(all, Manifest{Name: name, Text: []byte(text), Fine: size < 3<<20 || name == "long-anchor" || name == "long-tag"})
	}
	return all
}
