// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// packages are the Debian packages that a machine with Go and make needs: gcc, pkg-config and libseccomp build runc,
// busybox-static is the content of the test image, iproute2 removes the bridge, and portmap calls iptables.
var packages = []string{ //nolint:gochecknoglobals // a constant list
	"busybox-static", "gcc", "iproute2", "iptables", "libc6-dev", "libseccomp-dev", "pkg-config",
}

// installPackages installs the missing packages. If none is missing, it does not use the network.
func installPackages(ctx context.Context, wanted []string) error {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		say("no Debian: these packages, or what they are called here, have to be there: %s", strings.Join(wanted, " "))
		return nil
	}
	var missing []string
	for _, name := range wanted {
		out, err := exec.CommandContext(ctx, "dpkg-query", "--show", "--showformat=${db:Status-Status}", name).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	say("install Debian packages: %s", strings.Join(missing, " "))
	install := func() error {
		args := append([]string{"install", "--yes", "--no-install-recommends", "-qq"}, missing...)
		cmd := newCommand(ctx, "/", "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return runCommand(cmd)
	}
	if install() == nil {
		return nil
	}
	say("the package lists may be old: apt-get update")
	if err := runCommand(newCommand(ctx, "/", "apt-get", "update", "-qq")); err != nil {
		return err
	}
	return install()
}

// toolTags build runc with seccomp, which every sandbox requires, and containerd without snapshotters that need libraries.
const toolTags = "seccomp,no_btrfs,no_devmapper,no_zfs"

// toolset contains the tools that the module in a directory pins.
type toolset struct {
	folder string
	tags   string // build flags
	static bool   // the tools run in images without libraries
	test   string // package whose test binary is installed too, under the name of the package; empty: none
}

// build installs the tools into .lab/bin, unless they are there already.
func (s toolset) build(ctx context.Context, home string) error {
	dir, bin := filepath.Join(filepath.Dir(home), s.folder), filepath.Join(home, "bin")
	key, err := s.key(dir)
	if err != nil {
		return err
	}
	stamp := filepath.Join(bin, "."+strings.ReplaceAll(s.folder, "/", "-"))
	if b, err := os.ReadFile(stamp); err == nil && string(b) == key {
		return nil
	}
	began := time.Now()
	say("build what %s/go.mod pins into %s: seconds when cached, minutes when not", s.folder, bin)
	ldflags, err := versionFlags(ctx, dir)
	if err != nil {
		return err
	}
	cmd := newCommand(ctx, dir, "go", "install", "-trimpath", "-tags", s.tags, "-ldflags", ldflags, "tool")
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=1")
	if s.static {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	if err := runCommand(cmd); err != nil {
		return err
	}
	if s.test != "" {
		program := filepath.Join(bin, path.Base(s.test))
		test := newCommand(ctx, dir, "go", "test", "-c", "-trimpath", "-ldflags", ldflags, "-o", program, s.test)
		test.Env = cmd.Env
		if err := runCommand(test); err != nil {
			return err
		}
	}
	say("built in %v", time.Since(began).Round(100*time.Millisecond))
	return os.WriteFile(stamp, []byte(key), 0o644)
}

// key returns a hash of everything that affects the binaries.
func (s toolset) key(dir string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, s.tags)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// versionFlags returns linker flags that set the versions of the tools that take them from the linker.
func versionFlags(ctx context.Context, dir string) (string, error) {
	flags := []string{"-s", "-w"}
	kubernetes := "k8s.io/component-base/version.git"
	for _, v := range []struct{ module, variable string }{
		{"github.com/containerd/containerd/v2", "github.com/containerd/containerd/v2/version.Version"},
		{"github.com/containernetworking/plugins", "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion"},
		{"k8s.io/kubernetes", kubernetes + "Version"},
		{"sigs.k8s.io/cri-tools", "sigs.k8s.io/cri-tools/pkg/version.Version"},
	} {
		// go list prints a module without a version if it is not among the requirements.
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-e", "-f", "{{.Version}}", v.module)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("find version of %s: %w", v.module, err)
		}
		if version := strings.TrimSpace(string(out)); version != "" {
			flags = append(flags, "-X", v.variable+"="+version)
		}
	}
	// Programs of Kubernetes also need the major and minor version.
	if _, version, ok := strings.Cut(strings.Join(flags, " "), kubernetes+"Version=v"); ok {
		major, rest, _ := strings.Cut(version, ".")
		minor, _, _ := strings.Cut(rest, ".")
		flags = append(flags, "-X", kubernetes+"Major="+major, "-X", kubernetes+"Minor="+minor)
	}
	return strings.Join(flags, " "), nil
}
