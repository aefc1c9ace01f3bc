// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// job is the task of the first process of a VM. The initramfs contains it, encoded with gob, which preserves strings that
// are not UTF-8.
type job struct {
	Args, Env []string
	Dir       string   // working directory
	Kind      string   // "uml" or "qemu"
	Results   string   // directory of the host for the results, with uml
	Modules   string   // directory of the host with the modules of the kernel
	Shares    []string // writable directories of the host
	Scratch   []string // directories that are initially empty
}

// The results of a job: files in its directory with uml, ports of these names with qemu.
const (
	resultStdout = "stdout"
	resultStderr = "stderr"
	resultStatus = "status"
)

func newJob(k *kernel, cache string, args []string) (*job, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	shares, err := writable(args)
	if err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	lab := filepath.Dir(cache)
	return &job{
		Args:    args,
		Env:     append(env, "TMPDIR=/vm/tmp", "IN_TEST_VM=1"),
		Dir:     dir,
		Kind:    k.kind,
		Modules: k.modules(),
		Shares:  shares,
		// Files of the labs of this machine, and the central directory of CNI plugins. An overlay could not contain the
		// upper directories that containerd creates.
		Scratch: []string{filepath.Join(lab, "instances"), filepath.Join(lab, "use"), "/var/lib/cni"},
	}, nil
}

// writable returns the directories that the command may write to, with symbolic links resolved.
func writable(args []string) ([]string, error) {
	dirs := filepath.SplitList(os.Getenv("VM_RW"))
	// go test writes coverage and profiles into the directory of the test binary, or into outputdir.
	if strings.Contains(args[0], "/go-build") && strings.HasSuffix(args[0], ".test") {
		dirs = append(dirs, filepath.Dir(args[0]))
	}
	for _, arg := range args {
		if dir, found := strings.CutPrefix(arg, "-test.outputdir="); found {
			dirs = append(dirs, dir)
		}
	}
	dirs = append(dirs, os.Getenv("GOCOVERDIR"))
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
	for i, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if dirs[i], err = filepath.EvalSymlinks(abs); err != nil {
			return nil, fmt.Errorf("share writable directory: %w", err)
		}
	}
	slices.Sort(dirs) // parents first: their mounts would hide the mounts of their children
	return slices.Compact(dirs), nil
}

// options are the settings from environment variables.
type options struct {
	memory  int // MiB
	cpus    int
	timeout time.Duration
	clock   string // "own" or "host"
	// topology replaces memory and cpus; zero: unset.
	topology topology
}

// optionsFromEnv returns the settings for a kernel of this kind.
func optionsFromEnv(kind string) (options, error) {
	memory, err := positive("VM_MEM", 1024)
	if err != nil {
		return options{}, err
	}
	cpus, err := positive("VM_CPUS", 2)
	if err != nil {
		return options{}, err
	}
	seconds, err := positive("VM_TIMEOUT", 600)
	if err != nil {
		return options{}, err
	}
	clock := cmp.Or(os.Getenv("VM_CLOCK"), "host")
	if clock != "host" && clock != "own" {
		return options{}, fmt.Errorf("parse VM_CLOCK: %q is neither host nor own", clock)
	}
	hardware, err := topologyFromEnv(kind)
	if err != nil {
		return options{}, fmt.Errorf("parse VM_MACHINE: %w", err)
	}
	return options{memory, cpus, time.Duration(seconds) * time.Second, clock, hardware}, nil
}

func topologyFromEnv(kind string) (topology, error) {
	text := os.Getenv("VM_MACHINE")
	switch {
	case text == "":
		return topology{}, nil
	case kind != "qemu":
		return topology{}, fmt.Errorf("kernel %s has one CPU and one NUMA node: use qemu", kind)
	}
	return parseTopology(text)
}

func positive(name string, zero int) (int, error) {
	text := cmp.Or(os.Getenv(name), strconv.Itoa(zero))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parse %s: %q is no positive number", name, text)
	}
	return n, nil
}
