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

// Manifest is a hostile manifest file.
type Manifest struct {
	Name string // file name, such as alias-levels.yaml
	Text []byte
	Fine bool // an agent may accept it and run its pods
}

// All returns all manifests of the corpus. Generated manifests are about size bytes long.
func All(size int) []Manifest {
	all := slices.Concat(embeddedManifests(), aliasManifests(size), nestedManifests(size), manyManifests(size), longManifests(size))
	for i := range all {
		all[i].Name += ".yaml"
	}
	return all
}

// embeddedManifests returns the manifests in the files of the directory manifests.
func embeddedManifests() []Manifest {
	var all []Manifest
	_ = fs.WalkDir(manifests, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := manifests.ReadFile(path)
		name := strings.TrimSuffix(d.Name(), ".yaml")
		// An agent must parse fine manifests without an error: they attack later, such as when a variable is expanded.
		all = append(all, Manifest{Name: name, Text: text, Fine: strings.HasPrefix(name, "fine-") || strings.HasPrefix(name, "expansion-") || strings.HasPrefix(name, "text-")})
		return err
	})
	return all
}

// podManifest returns the YAML of a pod called name. The other arguments are additional YAML lines for its metadata, its
// spec and its container.
func podManifest(name, metadata, spec, container string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n" + metadata +
		"spec:\n  terminationGracePeriodSeconds: 1\n" + spec + "  containers:\n  - name: main\n    image: i\n    command: [sleep, '1000']\n" + container
}
