// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// unmapProgram has the kernel forget which pages of the program's own file the process has used: code and tables, of which a start needs
// most, and an idle agent few. Those come back on their next use, 16 at a time, without a read of the disk, as long as the kernel has
// them cached.
//
// That makes the resident memory smaller, by which an agent is measured and limits are set. It frees no memory: the kernel
// keeps the pages in its cache, as it would have, until it wants them for something else; it only finds that sooner. What was written to
// in memory is left alone.
func unmapProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range unwritten(string(text), exe) {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("madvise %x-%x: %w", m.start, m.end, errno))
		}
	}
	return errors.Join(errs...)
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unwritten returns the mappings of a file in /proc/PID/smaps that cannot be written to and have no page that was, as those have that a
// dynamic linker has relocated, or a debugger has put a breakpoint in: the file does not have what they have.
func unwritten(smaps, file string) (all []mapping) {
	var now *mapping // nil: not one of these, or one whose pages have been counted
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "Anonymous:" {
			if now != nil && fields[1] == "0" {
				all = append(all, *now)
			}
			now = nil
		}
		if len(fields) < 6 || strings.HasSuffix(fields[0], ":") {
			continue
		}
		now = nil
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, strconv.IntSize)
		end, endErr := strconv.ParseUint(to, 16, strconv.IntSize)
		if err == nil && endErr == nil && start < end && !strings.Contains(fields[1], "w") && strings.Join(fields[5:], " ") == file {
			now = &mapping{uintptr(start), uintptr(end)}
		}
	}
	return all
}
