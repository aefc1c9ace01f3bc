// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/stats"
)

// Filesystems is an optional interface of a [Source], which *stats.Collector implements. It measures the file systems at the
// mount points paths, with a time limit. The result lacks file systems that do not respond, and the error names them. If a Source
// does not implement it, the page lacks container_fs_limit_bytes, container_fs_usage_bytes, container_fs_inodes_free and
// container_fs_inodes_total.
type Filesystems interface {
	Filesystems(ctx context.Context, paths []string) (map[string]stats.Filesystem, error)
}

var (
	_ Filesystems = (*stats.Collector)(nil)
	_ Filesystems = (*stats.CachedCollector)(nil)
)

// Limits for reading mounts and disks of the machine. Pods with user namespaces cannot add mounts to its list.
const (
	maxMountinfo   = 4 << 20
	maxFilesystems = 32
	maxDiskstats   = 1 << 20
)

// mountedFS is a mounted file system of the machine.
type mountedFS struct {
	device, path string
	number       [2]uint32 // major and minor number of the device
	label        string
	stats.Filesystem
	measured bool // Filesystem was measured
	disk     *disk
}

// disk has the counters of a block device from /proc/diskstats. Time counters are in milliseconds.
type disk struct {
	name   string
	number [2]uint32
	counts [11]uint64
}

// Positions of the counters of a disk in /proc/diskstats.
const (
	diskReads = iota
	diskReadsMerged
	diskSectorsRead
	diskReadTime
	diskWrites
	diskWritesMerged
	diskSectorsWritten
	diskWriteTime
	diskInProgress
	diskIOTime
	diskWeightedIOTime
)

// machineDisks has the mounted file systems and the disks of a machine.
type machineDisks struct {
	mounts []mountedFS
	disks  []disk
}

// readDisks reads the counters of all disks from /proc, and the mounted file systems if mounts is true. Data that cannot be read
// is missing.
func readDisks(proc fs.FS, mounts bool) (result machineDisks, err error) {
	var errs []error
	text, err := readLimited(proc, "diskstats", maxDiskstats)
	if err == nil {
		result.disks, err = parseDiskstats(text)
	}
	// A file that does not exist is no error.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if mounts {
		text, err := readLimited(proc, "self/mountinfo", maxMountinfo)
		if err == nil {
			result.mounts, err = parseMountinfo(text)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for i := range result.mounts {
		result.mounts[i].disk = result.findDisk(result.mounts[i].device, result.mounts[i].number)
	}
	return result, errors.Join(errs...)
}

// findDisk returns the disk of a mounted file system by device path or number, or nil.
func (m *machineDisks) findDisk(device string, number [2]uint32) *disk {
	for i := range m.disks {
		if name, ok := strings.CutPrefix(device, "/dev/"); ok && name == m.disks[i].name || m.disks[i].number == number {
			return &m.disks[i]
		}
	}
	return nil
}

// devicePath returns the path of a block device, such as "/dev/sda", by its major and minor number, or an empty string.
func (m *machineDisks) devicePath(number [2]uint32) string {
	for i := range m.disks {
		if m.disks[i].number == number {
			return "/dev/" + m.disks[i].name
		}
	}
	return ""
}

// measureCapacity stores the size and usage of all mounted file systems in m.
func (m *machineDisks) measureCapacity(ctx context.Context, source Filesystems) error {
	paths := make([]string, len(m.mounts))
	for i := range m.mounts {
		paths[i] = m.mounts[i].path
	}
	answers, err := source.Filesystems(ctx, paths)
	for i := range m.mounts {
		m.mounts[i].Filesystem, m.mounts[i].measured = answers[m.mounts[i].path]
	}
	return err
}

func readLimited(proc fs.FS, name string, limit int64) ([]byte, error) {
	f, err := proc.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err == nil && int64(len(text)) == limit { // the last line may be incomplete
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return text, err
}

// parseDiskstats parses the content of /proc/diskstats, with lines such as "8 0 sda 1166 412 23242 ...". It omits devices that
// were never used.
func parseDiskstats(text []byte) (disks []disk, err error) {
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 14 {
			return nil, fmt.Errorf("diskstats: %.80q has %d fields, want at least 14", line, len(fields))
		}
		d := disk{name: strings.ReplaceAll(fields[2], "!", "/")} // as in cciss!c0d0
		for i := range d.number {
			n, err := strconv.ParseUint(fields[i], 10, 32)
			if err != nil {
				return nil, fmt.Errorf("diskstats: %.80q: device: %w", line, err)
			}
			d.number[i] = uint32(n)
		}
		for i := range d.counts {
			if d.counts[i], err = strconv.ParseUint(fields[3+i], 10, 64); err != nil {
				return nil, fmt.Errorf("diskstats: %.80q: counter %d: %w", line, i, err)
			}
		}
		if d.counts != [11]uint64{} {
			disks = append(disks, d)
		}
	}
	return disks, nil
}

// parseMountinfo returns the file systems in /proc/PID/mountinfo, one per device: those that cAdvisor lists (lib/fs), except
// those of pods and containers.
func parseMountinfo(text []byte) (all []mountedFS, err error) {
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("mountinfo: %.80q is no mount", line)
		}
		m := mountedFS{path: unescapeOctal(left[4]), device: unescapeOctal(right[1])}
		major, minor, _ := strings.Cut(left[2], ":")
		for i, part := range []string{major, minor} {
			n, err := strconv.ParseUint(part, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("mountinfo: %.80q: device: %w", line, err)
			}
			m.number[i] = uint32(n)
		}
		switch kind := right[0]; {
		case !isCountedType(kind), isPodMount(m.path):
			continue
		case kind == "tmpfs": // its source is an arbitrary word
			m.device = m.path
		case kind == "overlay":
			m.device = fmt.Sprintf("overlay_%d-%d", m.number[0], m.number[1])
		}
		if seen[m.device] || len(all) == maxFilesystems {
			continue
		}
		seen[m.device] = true
		m.label = formatLabel("device", m.device)
		all = append(all, m)
	}
	return all, nil
}

// isCountedType reports whether cAdvisor lists file systems of this type.
func isCountedType(kind string) bool {
	switch kind {
	case "tmpfs", "overlay", "btrfs", "zfs", "xfs", "squashfs", "f2fs", "jfs", "reiserfs", "hfs", "hfsplus", "ntfs", "vfat", "fat",
		"msdos", "exfat", "udf", "iso9660":
		return true
	}
	return strings.HasPrefix(kind, "ext") || strings.HasPrefix(kind, "nfs")
}

// isPodMount reports whether the path is a mount point of a pod volume, a CSI driver, a container or a sandbox.
func isPodMount(path string) bool {
	last, before := "", ""
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case before == "pods" && last != "" && (part == "volumes" || part == "volume-subpaths"):
			return true
		case len(part) == 64 && strings.Trim(part, "0123456789abcdef") == "": // an ID of a container or sandbox
			return true
		case part == "globalmount": // of a CSI driver
			return true
		}
		before, last = last, part
	}
	return false
}

// unescapeOctal replaces octal escapes such as \040.
func unescapeOctal(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
