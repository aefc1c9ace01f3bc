// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// buildCluster builds the programs of a control plane and a metrics-server, and an image of each, as package controlplane
// expects them.
func buildCluster(ctx context.Context, home string) error {
	if err := (toolset{folder: "tools/cluster", static: true}).build(ctx, home); err != nil {
		return err
	}
	bin := filepath.Join(home, "bin")
	// The main package of etcd is the root of its module, and is installed under the name of the module. Without a new
	// binary nothing was built.
	if err := os.Rename(filepath.Join(bin, "server"), filepath.Join(bin, controlplane.Etcd)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Join(home, "images"), 0o755); err != nil {
		return err
	}
	for name, image := range controlplane.Images() {
		if err := clusterImage(ctx, home, name, image); err != nil {
			return fmt.Errorf("make image %s: %w", image, err)
		}
	}
	// metrics-server has its own module, because it requires an older Kubernetes than the control plane.
	return toolset{folder: "tools/metrics", static: true}.build(ctx, home)
}

// clusterImage writes an image of one program, unless the image is newer than the program. The image of kubectl also contains
// a shell that calls it.
func clusterImage(ctx context.Context, home, name, image string) error {
	archive, program := filepath.Join(home, "images", name+".tar"), filepath.Join(home, "bin", name)
	built, err := os.Stat(program)
	if err != nil {
		return err
	}
	if made, err := os.Stat(archive); err == nil && made.ModTime().After(built.ModTime()) {
		return nil
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var files []entry
	if name == controlplane.Kubectl {
		if files, err = busyboxFiles(ctx); err != nil {
			return err
		}
	} else {
		files = []entry{{name: "bin/", mode: 0o755}}
	}
	files = append(files, entry{name: "bin/" + name, mode: 0o755, data: data})
	say("write image %s", image)
	return writeImage(archive, image, map[string]any{"Cmd": []string{name}, "Env": []string{"PATH=/bin"}}, files)
}
