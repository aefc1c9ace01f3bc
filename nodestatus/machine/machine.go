// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Info describes the hardware and operating system of a machine. Empty and zero fields are unknown.
type Info struct {
	MachineID, SystemUUID, BootID string
	KernelVersion, OSImage        string

	CPUs      int             // online logical CPUs
	Cores     int             // cores with an online CPU
	Sockets   int             // sockets with an online CPU
	Books     int             // books with an online CPU, on s390x; zero elsewhere
	Drawers   int             // drawers with an online CPU, on s390x; zero elsewhere
	Memory    int64           // bytes
	Swap      int64           // bytes
	HugePages map[int64]int64 // preallocated bytes, by page size in bytes
	UserNS    *bool           // this process runs in a user namespace; nil: unknown

	// RootFS is the size in bytes of the file system with emptyDirs, logs and writable layers. [Read] does not set it.
	RootFS int64
}

// Read reads the properties of a machine from the files below its root directory: the values that cAdvisor reads for the kubelet
// (lib/machine/info.go). A value that cannot be read is zero. The error names missing values that every machine has: boot ID,
// kernel version, CPUs, memory, huge pages.
func Read(root fs.FS) (m Info, err error) {
	if root == nil {
		return Info{}, errors.New("read machine: the file system is nil: hand in that of its root, on a host os.DirFS(\"/\")")
	}
	f := files{root}
	m.MachineID = f.firstID("etc/machine-id", "var/lib/dbus/machine-id")
	m.SystemUUID = f.firstID("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id")
	m.OSImage = f.readOSImage()
	m.UserNS = f.inUserNamespace()

	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("read machine: %w", err))
		}
	}
	m.BootID, err = f.readID("proc/sys/kernel/random/boot_id")
	add(err)
	m.KernelVersion, err = f.readID("proc/sys/kernel/osrelease")
	add(err)
	m.CPUs, err = f.countCPUs()
	add(err)
	f.readTopology(&m)
	m.Memory, m.Swap, err = f.readMemory()
	add(err)
	m.HugePages, err = f.readHugePages()
	add(err)
	return m, errors.Join(errs...)
}

// readOSImage returns the value of PRETTY_NAME in the file os-release. Without such a file it returns "Unknown".
func (f files) readOSImage() string {
	text, err := f.readFile("etc/os-release")
	if err != nil {
		text, err = f.readFile("usr/lib/os-release")
	}
	if err != nil {
		return "Unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			name = strings.Trim(name, `"`)
			return strings.ToValidUTF8(name[:min(len(name), maxID)], "")
		}
	}
	return "Linux"
}

// inUserNamespace reports whether this process runs in a user namespace other than the initial one; see user_namespaces(7).
func (f files) inUserNamespace() *bool {
	text, err := f.readFile("proc/self/uid_map")
	if err != nil {
		return new(false) // the kernel has no user namespaces
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	// Only the initial namespace maps all IDs to themselves.
	return new(len(fields) == 0 || len(fields) == 3 && strings.Join(fields, " ") != "0 0 4294967295")
}

// countCPUs returns the number of online CPUs.
func (f files) countCPUs() (int, error) {
	const name = "sys/devices/system/cpu/online"
	text, err := f.readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f.countProcessors()
	}
	if err != nil {
		return 0, err
	}
	n, err := countCPUList(strings.TrimSpace(string(text)))
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return n, err
}

// countCPUList returns the number of CPUs in list, for example 5 for "0-3,8".
func countCPUList(list string) (n int, err error) {
	last := -1
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.ParseUint(from, 10, 16)
		b, errB := strconv.ParseUint(to, 10, 16)
		if errA != nil || errB != nil || int(a) <= last || b < a {
			return 0, fmt.Errorf("is no list of CPUs: %.40q", list)
		}
		n, last = n+int(b-a)+1, int(b)
	}
	return n, nil
}

// countProcessors returns the number of CPUs in /proc/cpuinfo. It is used if the kernel has no /sys/devices/system/cpu.
func (f files) countProcessors() (n int, err error) {
	file, err := f.Open("proc/cpuinfo")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile*maxSizes))
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("processor")) {
			n++
		}
	}
	if err == nil && (n == 0 || n > maxCPUs) {
		err = fmt.Errorf("proc/cpuinfo: has %d processors", n)
	}
	return n, err
}

// readMemory returns the sizes of the machine's memory and swap space in bytes, read from /proc/meminfo.
func (f files) readMemory() (memory, swap int64, err error) {
	text, err := f.readFile("proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		into := map[string]*int64{"MemTotal": &memory, "SwapTotal": &swap}[name]
		if into == nil {
			continue
		}
		number, unit := strings.CutSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(number, 10, 53)
		if err != nil || !unit || n < 0 {
			return 0, 0, fmt.Errorf("proc/meminfo: %s: is no number of kB: %.40q", name, value)
		}
		*into = n << 10
	}
	if memory == 0 {
		return 0, 0, errors.New("proc/meminfo: has no MemTotal")
	}
	return memory, swap, nil
}

// readHugePages returns the total size of the preallocated huge pages by page size, both in bytes.
func (f files) readHugePages() (map[int64]int64, error) {
	const dir = "sys/kernel/mm/hugepages"
	entries, err := f.listDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the kernel has no huge pages
	}
	if err != nil {
		return nil, err
	}
	sizes := map[int64]int64{}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "hugepages-")
		text, ok2 := strings.CutSuffix(text, "kB")
		size, err := strconv.ParseInt(text, 10, 43)
		if !ok || !ok2 || err != nil || size <= 0 {
			return nil, fmt.Errorf("%s: is no size of huge pages: %.40q", dir, e.Name())
		}
		name := dir + "/" + e.Name() + "/nr_hugepages"
		id, err := f.readID(name)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if size <<= 10; err != nil || n < 0 || n > math.MaxInt64/size {
			return nil, fmt.Errorf("%s: is no number of pages: %.40q", name, id)
		}
		sizes[size] = n * size
	}
	return sizes, nil
}
