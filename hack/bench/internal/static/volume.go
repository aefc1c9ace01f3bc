// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// volumeKind is where the contents of a volume come from.
type volumeKind string

// The kinds of volumes, in the order in which the volumes of a pod have them.
const (
	emptyDir    volumeKind = "emptyDir"
	memoryDir   volumeKind = "emptyDir in memory"
	projectedCM volumeKind = "projected config map"
)

// volumeKinds returns the kinds of n volumes of a pod. A kubelet without an API server refuses pods that refer to objects, and sets up no
// projected volume: beside one all are empty directories.
func volumeKinds(n int, kubelet bool) []volumeKind {
	cycle := []volumeKind{emptyDir, memoryDir, projectedCM}
	if kubelet {
		cycle = cycle[:2]
	}
	kinds := make([]volumeKind, n)
	for i := range kinds {
		kinds[i] = cycle[i%len(cycle)]
	}
	return kinds
}

// withVolumes gives all pods volumes of these kinds.
func withVolumes(pods []pod, kinds []volumeKind) []pod {
	for i := range pods {
		for n, kind := range kinds {
			pods[i].Volumes = append(pods[i].Volumes, podVolume{Name: fmt.Sprintf("v%d", n), Kind: kind})
		}
	}
	return pods
}

// podVolume is a volume of a pod, which its container mounts at a path of its name.
type podVolume struct {
	Name string
	Kind volumeKind
}

// tmpfsSize is how large a volume in memory may be.
const tmpfsSize = "1Mi"

// Source is where the volume comes from, in the words of a manifest.
func (v podVolume) Source() string {
	switch v.Kind {
	case memoryDir:
		return "emptyDir: {medium: Memory, sizeLimit: " + tmpfsSize + "}"
	case projectedCM:
		return "projected: {sources: [{configMap: {name: " + configMapName + "}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}"
	default:
		return "emptyDir: {}"
	}
}

// readOnly reports whether containers cannot write to the volume.
func (v podVolume) readOnly() bool { return v.Kind == projectedCM }

// configMapName is the config map that volumes show.
const configMapName = "app"

// configMapData is what is in it.
var configMapData = map[string]string{"app.conf": strings.Repeat("key = value\n", 100), "mode": "bench"} //nolint:gochecknoglobals // a constant, but for the language

// writeObjects puts the config map of a namespace below a directory, as examples/agent reads it.
func writeObjects(dir, namespace string) error {
	dir = filepath.Join(dir, namespace, "configmaps")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata:\n", configMapName, namespace)
	for key, value := range configMapData {
		fmt.Fprintf(&text, "  %s: %q\n", key, value)
	}
	return os.WriteFile(filepath.Join(dir, configMapName+".yaml"), []byte(text.String()), 0o644)
}

// makeVolumes makes the volumes of a pod below a directory with the fewest system calls that they take.
func (p pod) makeVolumes(dir string) error {
	for _, v := range p.Volumes {
		at := filepath.Join(dir, v.Name)
		if err := os.Mkdir(at, 0o777); err != nil {
			return err
		}
		if v.Kind == emptyDir {
			continue
		}
		if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
			return fmt.Errorf("mount volume %s of %s: %w", v.Name, p.Name, err)
		}
		if v.Kind == memoryDir {
			continue
		}
		files := map[string]string{"labels": fmt.Sprint(p.Labels)}
		maps.Copy(files, configMapData)
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
