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

// unmapProgram unmaps the read-only pages of the program's own file: code and tables, most of which only a starting agent uses.
// At the next use the kernel maps 16 pages at a time again. It need not read the disk if it still has the pages in its page
// cache.
//
// This lowers the resident memory, which monitoring and operators compare. It frees no memory by itself: the pages stay in the
// page cache until the kernel reclaims them, which is possible sooner than for mapped pages. Pages that were written to stay
// mapped.
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

// cleanMappings returns the memory mappings of file that are read-only and whose pages all equal the file. smaps is the content
// of /proc/PID/smaps. A mapping with an anonymous page is excluded: a dynamic linker or a debugger has written to that page.
func cleanMappings(smaps, file string) (all []mapping) {
	var current *mapping // nil: the mapping is of another file, writable, or already counted
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "Anonymous:" {
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
