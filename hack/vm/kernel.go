// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Kernels live in .lab/vm/KIND-KEY. The key is a digest of what makes them from a Debian package: this file and the
// library for User Mode Linux. A directory of that name is complete, and never changes.
//
//go:embed kernel.go
var recipe []byte

//go:embed xstate/xstate.c
var xstateSource []byte

//go:embed xstate/clock.c
var clockSource []byte

//go:embed xstate/sched.c
var schedSource []byte

// prepareTimeout is for installing tools, and downloading and unpacking a kernel: seconds on a good network.
const prepareTimeout = 10 * time.Minute

// kernel is an unpacked kernel of one kind.
type kernel struct {
	kind string // "uml" or "qemu"
	dir  string
	// Debian packages, and a program of each by which its presence is known.
	tools    []string
	programs []string
	// early are the modules without which the root cannot be mounted, or that nothing asks for by name.
	early []string
}

func newKernel(cache, kind string) (*kernel, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("no kernel for %s: there are some for amd64", runtime.GOARCH)
	}
	key := sha256.Sum256(slices.Concat(recipe, xstateSource, clockSource, schedSource))
	k := &kernel{kind: kind, dir: filepath.Join(cache, fmt.Sprintf("%s-%.6x", kind, key))}
	switch kind {
	case "uml":
		k.tools, k.programs = []string{"gcc", "kmod", "libc6-dev"}, []string{"gcc", "depmod"}
		k.early = []string{"overlay", "loop"}
	case "qemu":
		k.tools, k.programs = []string{"kmod", "qemu-system-x86", "xz-utils"}, []string{"depmod", "qemu-system-x86_64", "xz"}
		k.early = []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "loop"}
	default:
		return nil, fmt.Errorf("no kernel %q: there are uml and qemu", kind)
	}
	return k, nil
}

// image is the file that boots.
func (k *kernel) image() string { return filepath.Join(k.dir, "linux") }

// modules is the directory with the modules, and all that modprobe wants to know about them.
func (k *kernel) modules() string { return filepath.Join(k.dir, "lib", "modules") }

// prepareKernel returns a kernel that can be started, and makes what is missing, once for all who ask at the same time.
func prepareKernel(ctx context.Context, cache, kind string) (*kernel, error) {
	k, err := newKernel(cache, kind)
	if err != nil || k.ready() {
		return k, err
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	unlock, err := lock(ctx, filepath.Join(cache, "prepare.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if k.ready() {
		return k, nil
	}
	if err := k.prepare(ctx); err != nil {
		return nil, fmt.Errorf("prepare kernel %s: %w", kind, err)
	}
	return k, nil
}

func (k *kernel) ready() bool {
	_, err := os.Stat(k.dir)
	return err == nil && k.hasTools()
}

func (k *kernel) hasTools() bool {
	return !slices.ContainsFunc(k.programs, func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}

func (k *kernel) prepare(ctx context.Context) error {
	if !k.hasTools() {
		project := filepath.Dir(filepath.Dir(filepath.Dir(k.dir)))
		args := append([]string{"run", "-buildvcs=false", "./hack/lab", "deps"}, k.tools...)
		if err := command(ctx, project, "go", args...); err != nil {
			return err
		}
	}
	if _, err := os.Stat(k.dir); err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "vm: download and unpack Debian's kernel for %s into %s\n", k.kind, k.dir)
	unfinished := *k
	unfinished.dir += ".new"
	if err := os.RemoveAll(unfinished.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished.dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(unfinished.dir)
	if err := unfinished.unpack(ctx); err != nil {
		return err
	}
	return os.Rename(unfinished.dir, k.dir)
}

// unpack makes the kernel from its Debian package.
func (k *kernel) unpack(ctx context.Context) error {
	if err := k.download(ctx); err != nil {
		// A mirror has no package that is older than the newest, and the lists may name one, or none at all.
		fmt.Fprintf(os.Stderr, "vm: %v: the package lists may be old: apt-get update\n", err)
		if err := command(ctx, k.dir, "apt-get", "update", "-qq"); err != nil {
			return err
		}
		if err := k.download(ctx); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(k.dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("find package in %s: %d files, not one: %w", k.dir, len(debs), err)
	}
	if err := command(ctx, k.dir, "dpkg-deb", "--extract", debs[0], k.dir); err != nil {
		return err
	}
	if k.kind == "uml" {
		err = k.arrangeUML(ctx)
	} else {
		err = k.arrangeStock(ctx)
	}
	if err != nil {
		return err
	}
	for _, path := range []string{debs[0], filepath.Join(k.dir, "boot"), filepath.Join(k.dir, "usr")} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	release, err := k.release()
	if err != nil {
		return err
	}
	return command(ctx, k.dir, "depmod", "--basedir", k.dir, release)
}

func (k *kernel) download(ctx context.Context) error {
	name := "user-mode-linux"
	if k.kind == "qemu" { // linux-image-amd64 is empty and depends on the kernel of the day
		out, err := exec.CommandContext(ctx, "apt-cache", "depends", "linux-image-amd64").Output()
		if err != nil {
			return fmt.Errorf("run apt-cache: %w", err)
		}
		_, after, found := strings.Cut(string(out), "Depends: linux-image-")
		if !found {
			return errors.New("find the kernel that linux-image-amd64 depends on: the package lists do not say")
		}
		name = "linux-image-" + strings.Fields(after)[0]
	}
	// As root, because the user _apt cannot write to a directory below /root.
	return command(ctx, k.dir, "apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", name)
}

// arrangeUML puts the files of User Mode Linux where those of any kernel are, and builds the library that it needs.
func (k *kernel) arrangeUML(ctx context.Context) error {
	if err := os.Mkdir(filepath.Join(k.dir, "lib"), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(k.dir, "usr/lib/uml/modules"), k.modules()); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(k.dir, "usr/bin/linux.uml"), k.image()); err != nil {
		return err
	}
	args := []string{"-O1", "-Wall", "-shared", "-fPIC", "-o", k.xstate()}
	for _, source := range []struct {
		name string
		text []byte
	}{{"xstate.c", xstateSource}, {"clock.c", clockSource}, {"sched.c", schedSource}} {
		path := filepath.Join(k.dir, source.name)
		if err := os.WriteFile(path, source.text, 0o644); err != nil {
			return err
		}
		args = append(args, path)
	}
	return command(ctx, k.dir, "gcc", args...)
}

// xstate is the library that User Mode Linux is loaded with.
func (k *kernel) xstate() string { return filepath.Join(k.dir, "xstate.so") }

// arrangeStock takes the kernel proper out of the compressed image, which qemu would spend seconds on at every boot.
func (k *kernel) arrangeStock(ctx context.Context) error {
	images, err := filepath.Glob(filepath.Join(k.dir, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("find kernel image: %d files, not one: %w", len(images), err)
	}
	compressed, err := os.ReadFile(images[0])
	if err != nil {
		return err
	}
	start := bytes.Index(compressed, []byte("\xfd7zXZ\x00"))
	if start < 0 {
		return fmt.Errorf("unpack %s: not compressed with xz", images[0])
	}
	xz := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--single-stream") // what follows is no stream
	xz.Stdin = bytes.NewReader(compressed[start:])
	xz.Stderr = os.Stderr
	image, err := xz.Output()
	if err == nil && !bytes.HasPrefix(image, []byte("\x7fELF")) {
		err = errors.New("not an ELF file")
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", images[0], err)
	}
	return os.WriteFile(k.image(), image, 0o644)
}

// release returns the version of the kernel, as uname says it and its modules are filed under.
func (k *kernel) release() (string, error) {
	entries, err := os.ReadDir(k.modules())
	if err == nil && len(entries) != 1 {
		err = fmt.Errorf("%d versions, not one", len(entries))
	}
	if err != nil {
		return "", fmt.Errorf("find modules of the kernel: %w", err)
	}
	return entries[0].Name(), nil
}

// command runs a program whose output goes to standard error, beside this program's own words.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "GOFLAGS=")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// lock takes the lock on a file, and waits for it until ctx ends. The end of the process releases it, too.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
