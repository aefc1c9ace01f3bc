// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of the initramfs. It is written for each VM: that takes milliseconds, and it is never stale.
const (
	guestJob     = "/job"
	guestModules = "/modules" // their names sort in load order
)

// initramfs returns the archive from which the kernel starts: this program, the job, and modules.
func initramfs(k *kernel, j *job) ([]byte, error) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(j); err != nil {
		return nil, err
	}
	var a archive
	for _, dir := range []string{"/proc", "/sys", "/dev", guestModules} {
		a.add(dir, modeDir|0o755, nil)
	}
	a.add("/init", modeFile|0o755, program)
	a.add(guestJob, modeFile|0o644, encoded.Bytes())
	modules, err := k.loadOrder(k.early...)
	if err != nil {
		return nil, err
	}
	for i, path := range modules {
		code, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		a.add(fmt.Sprintf("%s/%02d-%s", guestModules, i, filepath.Base(path)), modeFile|0o644, code)
	}
	return a.end(), nil
}

// loadOrder returns the files of modules and their dependencies in load order. A built-in module has no file.
func (k *kernel) loadOrder(names ...string) ([]string, error) {
	release, err := k.release()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(k.modules(), release)
	b, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	return loadOrder(dir, string(b), names), nil
}

// loadOrder parses a modules.dep: one line per module, with its dependencies in reverse load order.
func loadOrder(dir, dep string, names []string) (paths []string) {
	chains := map[string][]string{}
	for line := range strings.Lines(dep) {
		module, needs, _ := strings.Cut(line, ":")
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(module), ".ko"), "-", "_")
		chain := append([]string{module}, strings.Fields(needs)...)
		slices.Reverse(chain)
		chains[name] = chain
	}
	for _, name := range names {
		for _, module := range chains[name] {
			if path := filepath.Join(dir, module); !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// File types in the mode of an archive's entry, as in stat.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
)

// archive is a cpio archive in the "newc" format, see https://docs.kernel.org/driver-api/early-userspace/buffer-format.html
type archive struct{ buf bytes.Buffer }

func (a *archive) add(name string, mode int, data []byte) {
	name = strings.TrimPrefix(name, "/")
	// Magic, inode, mode, uid, gid, links, time, size, device and its two halves twice, length of the name, checksum.
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.buf.Len(), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name + "\x00")
	a.pad()
	a.buf.Write(data)
	a.pad()
}

// end completes the archive and returns it.
func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}
