// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed manifests
var manifests embed.FS

// Manifest is a file that no agent should die of.
type Manifest struct {
	Name string // of the file, such as alias-levels.yaml
	Text []byte
	Fine bool // an agent may also find nothing wrong with it, and run its pods
}

// All returns the corpus. What is not a file in the repository is about as
// many bytes as size says.
func All(size int) []Manifest {
	all := slices.Concat(files(), aliases(size), nested(size), many(size), long(size))
	for i := range all {
		all[i].Name += ".yaml"
	}
	return all
}

// files returns the manifests of the directory. What variables expand to shows only when a container is started,
// and that a text is a quantity only when the field is used.
func files() []Manifest {
	var all []Manifest
	_ = fs.WalkDir(manifests, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := manifests.ReadFile(path)
		name := strings.TrimSuffix(d.Name(), ".yaml")
		all = append(all, Manifest{Name: name, Text: text, Fine: strings.HasPrefix(name, "fine-") || strings.HasPrefix(name, "expansion-") || strings.HasPrefix(name, "text-")})
		return err
	})
	return all
}

// pod returns a manifest of a pod with more fields of its spec and of its container, and metadata.
func pod(name, metadata, spec, container string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n" + metadata +
		"spec:\n  terminationGracePeriodSeconds: 1\n" + spec + "  containers:\n  - name: main\n    image: i\n    command: [sleep, '1000']\n" + container
}
