// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import "strings"

// aliasManifests returns small manifests that become large when each YAML alias is replaced by its value. size limits a text
// in bytes.
func aliasManifests(size int) []Manifest {
	long := strings.Repeat("x", min(size, 100_000))
	uses := strings.Repeat("*a,", min(size/3, 10_000))
	scalar := podManifest("alias-scalar", "  annotations:\n    a: &a "+long+"\n", "", "    args: ["+uses+"]\n")
	lists := podManifest("alias-scalar-in-lists", "  annotations:\n    a: &a "+long+"\n", "",
		"    args: ["+strings.Repeat("["+strings.Repeat("*a,", 500)+"],", 20)+"]\n")
	escaped := podManifest("alias-escaped", "  annotations:\n    a: &a "+strings.Repeat("<", len(long))+"\n", "", "    args: ["+strings.Repeat("*a,", 100)+"]\n")
	key := podManifest("alias-key", "  annotations:\n    a: &a "+long+"\n", "", "    x: ["+strings.Repeat("{*a : b},", min(size/9, 3_000))+"]\n")
	merge := podManifest("alias-merge", "", "", "    x: &a {k: "+long+"}\n    y: ["+strings.Repeat("{<<: *a},", min(size/9, 3_000))+"]\n")

	var levels strings.Builder
	levels.WriteString(podManifest("alias-many-levels", "", "", "    l0: &l0 [x,x,x,x,x,x,x,x]\n"))
	for i := range 60 {
		name, before := "l"+levelSuffix(i+1), "l"+levelSuffix(i)
		if i == 0 {
			before = "l0"
		}
		levels.WriteString("    " + name + ": &" + name + " [" + strings.Repeat("*"+before+",", 8) + "]\n")
	}
	return []Manifest{
		{Name: "alias-scalar", Text: []byte(scalar)},
		{Name: "alias-scalar-in-lists", Text: []byte(lists)},
		{Name: "alias-escaped", Text: []byte(escaped)},
		{Name: "alias-key", Text: []byte(key)},
		{Name: "alias-merge", Text: []byte(merge)},
		{Name: "alias-many-levels", Text: []byte(levels.String())},
	}
}

// levelSuffix returns the letter i n times. It makes the names of levels unique.
func levelSuffix(n int) string { return strings.Repeat("i", n) }
