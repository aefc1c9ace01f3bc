// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"bufio"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// limitPercent is the percentage of the cgroup's memory that the Go runtime may use. The rest is for the page cache of the
// program and for memory of the kernel, such as socket buffers.
const limitPercent = 80

// LimitToCgroup sets the memory limit of the Go runtime to 80 % of the memory limit of the process's cgroup (v1 or v2), and
// logs this. The garbage collector then works harder near the limit. Otherwise the heap could grow to twice the live heap,
// and the kernel could kill the process.
//
// It does nothing if the cgroup has no limit or cannot be read. It also does nothing if the environment variable GOMEMLIMIT
// is set, because the operator then has set the limit. A nil logger discards all messages.
func LimitToCgroup(logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, ok := cgroupLimit(os.DirFS("/"))
	if !ok {
		return
	}
	debug.SetMemoryLimit(limit / 100 * limitPercent)
	if logger != nil {
		logger.Info("memory of the Go runtime is limited", "bytes", limit/100*limitPercent, "cgroupBytes", limit)
	}
}

// hierarchy is a mounted cgroup hierarchy that has the memory controller.
type hierarchy struct {
	root, mountPoint string // as in /proc/self/mountinfo
	file             string // name of the file with the limit
}

// cgroupLimit returns the lowest memory limit, in bytes, of the cgroup of this process and its parents, if any.
func cgroupLimit(root fs.FS) (limit int64, ok bool) {
	h, found := memoryHierarchy(root)
	if !found {
		return 0, false
	}
	cgroup, found := memoryCgroup(root, h)
	if !found {
		return 0, false
	}
	below := "/"
	if rest, inside := strings.CutPrefix(cgroup, strings.TrimSuffix(h.root, "/")); inside && !strings.Contains(rest, "..") {
		below = path.Clean("/" + rest)
	}
	limit = math.MaxInt64
	for {
		text, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(h.mountPoint, below, h.file), "/"))
		// Without a limit v2 has "max", and v1 the largest multiple of a page that an int64 holds.
		if n, errParse := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && errParse == nil && n > 0 && n < 1<<60 {
			limit = min(limit, n)
		}
		if below == "/" {
			return limit, limit < math.MaxInt64
		}
		below = path.Dir(below)
	}
}

// memoryHierarchy returns the cgroup v1 hierarchy of the memory controller, or else the cgroup v2 hierarchy.
func memoryHierarchy(root fs.FS) (h hierarchy, found bool) {
	for fields := range procLines(root, "proc/self/mountinfo", " ") {
		at := slices.Index(fields, "-")
		if at < 6 || len(fields) < at+4 {
			continue
		}
		switch {
		case fields[at+1] == "cgroup" && slices.Contains(strings.Split(fields[at+3], ","), "memory"):
			return hierarchy{root: fields[3], mountPoint: fields[4], file: "memory.limit_in_bytes"}, true
		case fields[at+1] == "cgroup2" && !found:
			h, found = hierarchy{root: fields[3], mountPoint: fields[4], file: "memory.max"}, true
		}
	}
	return h, found
}

// memoryCgroup returns the path of this process's cgroup in the hierarchy h, and false if there is no such cgroup. root is
// the file system of the host.
func memoryCgroup(root fs.FS, h hierarchy) (cgroup string, found bool) {
	for fields := range procLines(root, "proc/self/cgroup", ":") {
		v2 := fields[0] == "0" && len(fields) > 1 && fields[1] == ""
		if len(fields) >= 3 && (v2 && h.file == "memory.max" || slices.Contains(strings.Split(fields[1], ","), "memory")) {
			return strings.Join(fields[2:], ":"), true
		}
	}
	return "", false
}

// procLines yields the lines of a file such as proc/self/cgroup, each split at separator.
func procLines(root fs.FS, name, separator string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		file, err := root.Open(name)
		if err != nil {
			return
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if !yield(strings.Split(lines.Text(), separator)) {
				return
			}
		}
	}
}
