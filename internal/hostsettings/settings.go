// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostsettings

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Settings selects the checks and changes of Apply. The zero value does nothing.
type Settings struct {
	FailSwapOn       bool   // refuse a machine whose kernel has swap
	FailCgroupV1     bool   // refuse a host with cgroup v1
	CheckParameters  bool   // protectKernelDefaults: refuse a machine whose kernel parameters differ from those of a kubelet
	ChangeParameters bool   // set these kernel parameters; ignored with CheckParameters
	OOMScoreAdj      *int32 // OOM score adjustment of this process; nil: unchanged
	MaxOpenFiles     uint64 // open files of this process; zero: unchanged
	Cgroup           string // cgroup of this process, as an absolute name; empty: unchanged
}

// parameter is a kernel parameter that a kubelet needs. Source: setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go.
type parameter struct {
	name  string // path below /proc/sys
	value int
}

// kernelParameters returns the parameters with the values of a kubelet: the kernel grants all memory that programs allocate, kills processes rather
// than panic, reboots 10 s after a panic, panics on an oops, and lets root have a key for each container.
func kernelParameters() []parameter {
	return []parameter{
		{"kernel/keys/root_maxbytes", 25_000_000},
		{"kernel/keys/root_maxkeys", 1_000_000},
		{"kernel/panic", 10},
		{"kernel/panic_on_oops", 1},
		{"vm/overcommit_memory", 1},
		{"vm/panic_on_oom", 0},
	}
}

// Apply checks and changes the machine and this process. proc is the directory /proc. It returns an error for each check that fails, and for each
// kernel parameter that cannot be read or set. A nil logger discards.
func (s Settings) Apply(proc string, logger *slog.Logger) error {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(s.checkCgroups(proc), s.checkSwap(proc), s.applyParameters(proc, logger)); err != nil {
		return err
	}
	if s.OOMScoreAdj != nil {
		path := filepath.Join(proc, "self/oom_score_adj")
		if err := writeFile(path, strconv.Itoa(int(*s.OOMScoreAdj))); err != nil {
			logger.Warn("oomScoreAdj is not set", "oomScoreAdj", *s.OOMScoreAdj, "error", err)
		}
	}
	if s.Cgroup != "" {
		if err := joinCgroup(proc, s.Cgroup); err != nil {
			logger.Warn("kubeletCgroups is not set", "kubeletCgroups", s.Cgroup, "error", err)
		}
	}
	if s.MaxOpenFiles > 0 {
		if err := setOpenFiles(s.MaxOpenFiles); err != nil {
			logger.Warn("maxOpenFiles is not set", "maxOpenFiles", s.MaxOpenFiles, "error", err)
		}
	}
	return nil
}

// checkSwap returns an error if FailSwapOn is set and the kernel has swap. A kernel without the file has none. Source: pkg/kubelet/util/swap.
func (s Settings) checkSwap(proc string) error {
	if !s.FailSwapOn {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(proc, "swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failSwapOn: %w", err)
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	if len(lines) < 2 { // the heading
		return nil
	}
	device, _, _ := strings.Cut(lines[1], "\t")
	return fmt.Errorf("failSwapOn: true, but the machine has swap: %q: disable it, or set failSwapOn to false", strings.TrimSpace(device))
}

// checkCgroups returns an error if FailCgroupV1 is set and /sys/fs/cgroup is no cgroup2 file system, which also holds for a hybrid host. Source:
// pkg/kubelet/apis/config/validation/validation_linux.go.
func (s Settings) checkCgroups(proc string) error {
	if !s.FailCgroupV1 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return fmt.Errorf("failCgroupV1: %w", err)
	}
	kind := ""
	for line := range strings.Lines(string(text)) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) > 4 && fields[4] == "/sys/fs/cgroup" {
			kind, _, _ = strings.Cut(filesystem, " ") // a later mount hides an earlier one
		}
	}
	if kind != "cgroup2" {
		return fmt.Errorf("failCgroupV1: true, but the host has cgroup v1: /sys/fs/cgroup is of type %q: set failCgroupV1 to false", kind)
	}
	return nil
}

// applyParameters checks or changes the kernel parameters. In a user namespace, where only the host can set them, a failed change is logged, as with
// the kubelet's gate KubeletInUserNamespace.
func (s Settings) applyParameters(proc string, logger *slog.Logger) (err error) {
	if !s.CheckParameters && !s.ChangeParameters {
		return nil
	}
	for _, p := range kernelParameters() {
		path := filepath.Join(proc, "sys", p.name)
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("protectKernelDefaults: %w", readErr))
			continue
		}
		found := string(bytes.TrimSpace(text))
		if number, parseErr := strconv.Atoi(found); parseErr == nil && number == p.value {
			continue
		}
		if s.CheckParameters {
			err = errors.Join(err, fmt.Errorf("protectKernelDefaults: true, but kernel parameter %s is %q, want %d", p.name, found, p.value))
			continue
		}
		logger.Info("set a kernel parameter", "name", p.name, "value", p.value, "previous", found)
		if writeErr := writeFile(path, strconv.Itoa(p.value)); writeErr != nil && isInUserNamespace(proc) {
			logger.Warn("a kernel parameter is not set in a user namespace", "name", p.name, "error", writeErr)
		} else if writeErr != nil {
			err = errors.Join(err, fmt.Errorf("protectKernelDefaults: false, but kernel parameter %s cannot be set to %d: %w", p.name, p.value, writeErr))
		}
	}
	return err
}

// isInUserNamespace reports whether this process is in a user namespace other than that of the host, whose only line maps all IDs to themselves.
func isInUserNamespace(proc string) bool {
	text, err := os.ReadFile(filepath.Join(proc, "self/uid_map"))
	return err == nil && !slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"})
}

// writeFile writes a file of the kernel, which must exist.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
