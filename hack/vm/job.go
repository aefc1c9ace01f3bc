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

// job is the task of the first process of a VM. It is part of the initramfs, encoded with gob, which keeps bytes that are not
// UTF-8.
type job struct {
	Args, Env []string
	Dir       string   // working directory
	Kind      string   // "uml" or "qemu"
	Results   string   // directory of the host that takes the results, with uml
	Modules   string   // directory of the host with the modules of the kernel
	Shares    []string // directories of the host that can be written to
	Scratch   []string // directories that begin empty
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
		// What labs of this machine keep on disk, and CNI plugins in one place for all. An overlay could not carry
		// the upper directories that containerd makes.
		Scratch: []string{filepath.Join(lab, "instances"), filepath.Join(lab, "use"), "/var/lib/cni"},
	}, nil
}

// writable returns the directories that the command may write to, with symbolic links resolved.
func writable(args []string) ([]string, error) {
	dirs := filepath.SplitList(os.Getenv("VM_RW"))
	// go test has coverage and profiles written beside the test binary in its working directory, or to outputdir.
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
	slices.Sort(dirs) // parents first, or their mounts would hide those of their children
	return slices.Compact(dirs), nil
}

// options are the settings from environment variables.
type options struct {
	memory  int // MiB
	cpus    int
	timeout time.Duration
}

func optionsFromEnv() (options, error) {
	memory, err := positive("VM_MEM", 1024)
	if err != nil {
		return options{}, err
	}
	cpus, err := positive("VM_CPUS", 2)
	if err != nil {
		return options{}, err
	}
	seconds, err := positive("VM_TIMEOUT", 600)
	return options{memory, cpus, time.Duration(seconds) * time.Second}, err
}

func positive(name string, zero int) (int, error) {
	text := cmp.Or(os.Getenv(name), strconv.Itoa(zero))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parse %s: %q is no positive number", name, text)
	}
	return n, nil
}
