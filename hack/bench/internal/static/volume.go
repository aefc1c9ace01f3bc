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

// volumeKind is a type of volume source.
type volumeKind string

// The kinds of volumes, in their order in a pod.
const (
	emptyDir    volumeKind = "emptyDir"
	memoryDir   volumeKind = "emptyDir in memory"
	projectedCM volumeKind = "projected config map"
)

// volumeKinds returns the kinds of n volumes of a pod. A kubelet without an API server rejects pods that refer to API
// objects, and sets up no projected volumes: if it is measured, all volumes are emptyDirs.
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

// withVolumes adds volumes of these kinds to all pods.
func withVolumes(pods []pod, kinds []volumeKind) []pod {
	for i := range pods {
		for n, kind := range kinds {
			pods[i].Volumes = append(pods[i].Volumes, podVolume{Name: fmt.Sprintf("v%d", n), Kind: kind})
		}
	}
	return pods
}

// podVolume is a volume of a pod. Its container mounts it at a path named after it.
type podVolume struct {
	Name string
	Kind volumeKind
}

// tmpfsSize is the size limit of a volume in memory.
const tmpfsSize = "1Mi"

// Source returns the volume source in the syntax of a manifest.
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

// configMapName is the name of the projected config map.
const configMapName = "app"

// configMapData is the content of the config map.
var configMapData = map[string]string{"app.conf": strings.Repeat("key = value\n", 100), "mode": "bench"} //nolint:gochecknoglobals // a constant, but for the language

// writeObjects writes the config map of a namespace below a directory, in the form that examples/agent reads.
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

// setUpVolumes sets up the volumes of a pod below a directory with as few system calls as possible.
func (p pod) setUpVolumes(dir string) error {
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
