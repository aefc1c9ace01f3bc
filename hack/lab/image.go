// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/seed81659283/nodeagent/internal/lab"
)

// entry is one file of an image: a directory if its name ends in a slash, a symbolic link if it has a target.
type entry struct {
	name   string
	mode   int64
	target string
	data   []byte
}

// buildImages writes the images that every lab loads. They are reproducible as long as the programs in them are unchanged.
func buildImages(ctx context.Context, home string) error {
	dir := filepath.Join(home, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pause, err := pauseFiles(ctx, home)
	if err != nil {
		return err
	}
	busybox, err := busyboxFiles(ctx)
	if err != nil {
		return err
	}
	pauseConfig := map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"}
	if err := writeImage(filepath.Join(dir, "pause.tar"), lab.PauseImage, pauseConfig, pause); err != nil {
		return err
	}
	busyboxConfig := map[string]any{"Cmd": []string{"sh"}, "Env": []string{"PATH=/bin"}}
	return writeImage(filepath.Join(dir, "busybox.tar"), lab.BusyboxImage, busyboxConfig, busybox)
}

func pauseFiles(ctx context.Context, home string) ([]entry, error) {
	path := filepath.Join(home, "images", "pause")
	cmd := newCommand(ctx, filepath.Dir(home), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./hack/lab/pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := runCommand(cmd); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	return []entry{{name: "pause", mode: 0o755, data: b}}, err
}

// busyboxFiles returns a small root file system with Debian's static busybox.
func busyboxFiles(ctx context.Context) ([]entry, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("find busybox (run `lab deps` as root): %w", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", path, err)
	}
	files := []entry{
		{name: "bin/", mode: 0o755},
		{name: "dev/", mode: 0o755},
		{name: "etc/", mode: 0o755},
		{name: "proc/", mode: 0o555},
		{name: "root/", mode: 0o700},
		{name: "sys/", mode: 0o555},
		{name: "tmp/", mode: 0o1777},
		{name: "var/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{name: "bin/busybox", mode: 0o755, data: b},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, entry{name: "bin/" + applet, mode: 0o777, target: "busybox"})
		}
	}
	return files, nil
}

// writeImage writes an image of one layer as an archive in the format of docker save, which containerd and crane read.
// Platform and digests are in the configuration; containerd hides an image without a platform, because it assumes another
// architecture.
func writeImage(path, name string, config map[string]any, files []entry) error {
	layer, err := tarball(files)
	if err != nil {
		return fmt.Errorf("pack layer of %s: %w", name, err)
	}
	configJSON, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       config,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return err
	}
	configName, layerName := digest(configJSON)+".json", digest(layer)+".tar"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{name}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	archive, err := tarball([]entry{
		{name: configName, mode: 0o644, data: configJSON},
		{name: layerName, mode: 0o644, data: layer},
		{name: "manifest.json", mode: 0o644, data: manifest},
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, archive, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func tarball(files []entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Linkname: f.target, Typeflag: tar.TypeReg}
		switch {
		case f.target != "":
			h.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
