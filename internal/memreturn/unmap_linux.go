// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// unmapProgram unmaps the unmodified, read-only pages of the program's own file. They contain code and tables that are
// mostly used only while the agent starts. When the program uses such a page again, the kernel maps it again with its
// neighbours, from the page cache or the disk.
//
// This lowers the resident memory, which monitoring shows and operators compare. It does not free memory itself: the pages
// stay in the page cache, but the kernel can reclaim them sooner than mapped pages.
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
	for _, m := range cleanMappings(string(text), exe) {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("madvise %x-%x: %w", m.start, m.end, errno))
		}
	}
	return errors.Join(errs...)
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// cleanMappings returns the read-only mappings of file in smaps, the content of /proc/PID/smaps, whose pages are unmodified.
func cleanMappings(smaps, file string) (all []mapping) {
	var current *mapping // nil: the mapping is of another file, writable, or already counted
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "Anonymous:" {
			// An anonymous page was written by a dynamic linker or a debugger.
			if current != nil && fields[1] == "0" {
				all = append(all, *current)
			}
			current = nil
		}
		if len(fields) < 6 || strings.HasSuffix(fields[0], ":") {
			continue
		}
		current = nil
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, strconv.IntSize)
		end, endErr := strconv.ParseUint(to, 16, strconv.IntSize)
		if err == nil && endErr == nil && start < end && !strings.Contains(fields[1], "w") && strings.Join(fields[5:], " ") == file {
			current = &mapping{uintptr(start), uintptr(end)}
		}
	}
	return all
}
