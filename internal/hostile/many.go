// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"
)

// manyManifests returns manifests with very many elements of one kind. Each manifest is about size bytes long.
func manyManifests(size int) []Manifest {
	const container, mount = "{name: c%d, image: i}", "{name: v, mountPath: /%d}"
	text := func(name, text string) Manifest { return Manifest{Name: name, Text: []byte(text)} }
	repeat := func(name, element string) Manifest {
		return text(name, strings.Repeat(element, max(2, size/len(element))))
	}
	list := func(name, indent, field, element string) Manifest {
		head := podManifest(name, "", "", "")
		if indent == "  " && field == "containers" {
			head, _, _ = strings.Cut(head, "  containers:")
		}
		return text(name, head+indent+field+": ["+repeatNumbered(element+",", size-len(head))+"]\n")
	}
	head := "apiVersion: v1\nkind: PodList\nitems: ["
	return []Manifest{
		list("many-containers-empty", "  ", "containers", "{}"),
		list("many-containers", "  ", "containers", container),
		list("many-init-containers", "  ", "initContainers", container),
		list("many-ephemeral-containers", "  ", "ephemeralContainers", container),
		list("many-volumes", "  ", "volumes", "{name: v%d, emptyDir: {}}"),
		list("many-mounts", "    ", "volumeMounts", mount),
		list("many-env", "    ", "env", "{name: A%d, value: b}"),
		list("many-args", "    ", "args", "a"),
		list("many-ports", "    ", "ports", "{containerPort: %d}"),
		list("many-lists", "    ", "args", "[]"),
		list("many-pairs", "    ", "args", "a: b"),
		text("many-items-empty", head+repeatNumbered("{},", size)+"]"),
		text("many-items", head+repeatNumbered("{metadata: {name: p%d}, spec: {containers: [{name: c, image: i}], restartPolicy: Sometimes}},", size)+"]"),
		text("many-json-containers", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[`+
			strings.TrimSuffix(repeatNumbered(`{"name":"c%d","image":"i"},`, size), ",")+"]}}"),
		text("many-json-pods-of-empty-containers", `{"apiVersion":"v1","kind":"PodList","items":[`+strings.TrimSuffix(repeatNumbered(
			`{"metadata":{"name":"p%d"},"spec":{"containers":[{}`+strings.Repeat(",{}", 900)+"]}},", size), ",")+"]}"),
		text("many-pods-of-empty-containers", head+repeatNumbered("{spec: {containers: ["+strings.Repeat("{},", 900)+"]}},", size)+"]"),
		text("many-json-items", `{"apiVersion":"v1","kind":"PodList","items":[`+strings.TrimSuffix(repeatNumbered("1,", size), ",")+"]}"),
		text("many-labels", podManifest("many-labels", "  labels: {"+repeatNumbered("l%d: v,", size)+"}\n", "", "")),
		text("many-labels-of-a-wrong-type", podManifest("many-labels", "  labels: {"+repeatNumbered("l%d: v,", size)+"z: []}\n", "", "")),
		text("many-unknown-fields", podManifest("many-unknown", "", "", repeatNumbered("    f%d: v\n", size))),
		text("many-duplicate-fields", podManifest("many-duplicate", "", "", strings.Repeat("    image: v\n", size/13))),
		repeat("many-separators", "---\n"),
		repeat("many-documents", "---\na\n"),
		repeat("many-comments", "#\n\n"),
		repeat("many-comments-behind", "- a #\n"),
		repeat("many-anchors", "- &a b\n"),
		repeat("many-tags", "- !a b\n"),
		repeat("many-questions", "? \n"),
		text("many-pods", repeatNumbered("---\n"+podManifest("p%d", "", "  restartPolicy: Sometimes\n", ""), size)),
	}
}

// repeatNumbered repeats element to about size bytes. %d in element becomes the number of the repetition, from zero.
func repeatNumbered(element string, size int) string {
	var b strings.Builder
	for i := 0; b.Len()+len(element) < size || i < 2; i++ {
		if strings.Contains(element, "%d") {
			fmt.Fprintf(&b, element, i)
			continue
		}
		b.WriteString(element)
	}
	return b.String()
}
