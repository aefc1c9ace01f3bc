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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// buildCluster builds the programs of a control plane and its addons, an image of each as package controlplane expects them, and a metrics-server.
func buildCluster(ctx context.Context, home string) error {
	if err := (toolset{folder: "tools/cluster", static: true}).build(ctx, home); err != nil {
		return err
	}
	// CoreDNS has its own module, because it requires an older Kubernetes.
	if err := (toolset{folder: "tools/dns", static: true}).build(ctx, home); err != nil {
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

// clusterImage writes an image of one program, unless the image is newer than the program.
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
	config := map[string]any{"Cmd": []string{name}, "Env": []string{"PATH=/bin:/usr/local/bin:/usr/sbin"}}
	files, path := []entry{{name: "bin/", mode: 0o755}}, "bin/"+name
	switch name {
	case controlplane.Kubectl: // and a shell that calls it
		files, err = busyboxFiles(ctx)
	case controlplane.Proxy: // kubeadm's manifest has this path
		path = "usr/local/bin/" + name
		files, err = iptablesFiles(ctx)
	case controlplane.CoreDNS: // kubeadm's manifest has arguments alone
		config["Entrypoint"], config["Cmd"] = []string{"/bin/" + name}, nil
	}
	if err != nil {
		return err
	}
	say("write image %s", image)
	return writeImage(archive, image, config, append(files, entry{name: path, mode: 0o755, data: data}))
}

// iptablesFiles returns the iptables of this machine, with its extensions and the libraries that these need.
func iptablesFiles(ctx context.Context) ([]entry, error) {
	const program = "xtables-nft-multi"
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find iptables (run `lab deps` as root): %w", err)
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, "ldd", append(extensions, path)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list libraries of %s: %w", path, err)
	}
	libraries := slices.DeleteFunc(strings.Fields(string(output)), func(word string) bool { // "NAME => PATH (ADDRESS)", "PATH (ADDRESS)", and "FILE:"
		return !filepath.IsAbs(word) || strings.HasSuffix(word, ":")
	})
	slices.Sort(libraries)
	var files []entry
	add := func(name, path string) error {
		data, err := os.ReadFile(path)
		files = append(files, entry{name: name, mode: 0o755, data: data})
		return err
	}
	if err := add("usr/sbin/"+program, path); err != nil {
		return nil, err
	}
	for _, library := range append(slices.Compact(libraries), extensions...) {
		if err := add(library[1:], library); err != nil {
			return nil, err
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			files = append(files, entry{name: "usr/sbin/" + family + suffix, mode: 0o777, target: program})
		}
	}
	return files, nil
}
