// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// nestedMountPoints returns the relative mount points of other volumes inside a volume: "b" if it is mounted at /a and another
// volume at /a/b. Source: getNestedMountpoints in pkg/volume/util.
//
// The plugin creates them, because the container runtime cannot create directories in a read-only volume.
func nestedMountPoints(name string, spec *corev1.PodSpec) []string {
	var found []string
	for c := range containers.All(spec) {
		var all, mine []string
		for _, m := range c.VolumeMounts {
			at := path.Clean("/" + m.MountPath)
			all = append(all, at)
			if m.Name == name {
				mine = append(mine, at)
			}
		}
		slices.Sort(all)
		for _, at := range mine {
			found = append(found, relativeBelow(at, all)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// relativeBelow returns the sorted paths below target, relative to it, without a path that is below another one.
func relativeBelow(target string, sorted []string) []string {
	var found []string
	prefix := target + "/" // no path begins with "//": below the root directory nothing is needed
	for _, other := range sorted {
		rest, ok := strings.CutPrefix(other, prefix)
		if !ok || slices.ContainsFunc(found, func(outer string) bool { return strings.HasPrefix(rest, outer+"/") }) {
			continue
		}
		found = append(found, rest)
	}
	return found
}

// createMountPoints creates the directories with these names, and their parents, in the directory dir. Package atomicwriter
// keeps them when it updates the volume.
func createMountPoints(dir string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("mount point %.256q: %w", name, err)
		}
	}
	return nil
}
