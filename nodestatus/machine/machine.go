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

// Info is what is known of a machine. What is empty or zero is not known.
type Info struct {
	MachineID, SystemUUID, BootID string
	KernelVersion, OSImage        string

	CPUs      int             // logical ones that are online
	Cores     int             // that have one of them
	Sockets   int             // that have one of them
	Books     int             // the same on s390x; zero elsewhere
	Drawers   int             // the same on s390x; zero elsewhere
	Memory    int64           // bytes
	Swap      int64           // bytes
	HugePages map[int64]int64 // preallocated bytes by the size of a page in bytes
	UserNS    *bool           // whether this process is in a user namespace; nil: not known

	// RootFS is how many bytes the file system has that emptyDirs, logs and writable layers are on. [Read] does not know it.
	RootFS int64
}

// Read reads below the root directory of a machine what cAdvisor reads for the kubelet (lib/machine/info.go). What cannot be read is
// not known in the answer; CPUs, memory, boot ID and kernel are part of the error, because every machine has them.
func Read(root fs.FS) (m Info, err error) {
	if root == nil {
		return Info{}, errors.New("read machine: the file system is nil: hand in that of its root, on a host os.DirFS(\"/\")")
	}
	f := files{root}
	m.MachineID = f.first("etc/machine-id", "var/lib/dbus/machine-id")
	m.SystemUUID = f.first("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id")
	m.OSImage = f.osImage()
	m.UserNS = f.userNS()

	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("read machine: %w", err))
		}
	}
	m.BootID, err = f.id("proc/sys/kernel/random/boot_id")
	add(err)
	m.KernelVersion, err = f.id("proc/sys/kernel/osrelease")
	add(err)
	m.CPUs, err = f.cpus()
	add(err)
	f.topology(&m)
	m.Memory, m.Swap, err = f.memory()
	add(err)
	m.HugePages, err = f.hugePages()
	add(err)
	return m, errors.Join(errs...)
}

// osImage returns the name that the operating system has for people.
func (f files) osImage() string {
	text, err := f.read("etc/os-release")
	if err != nil {
		text, err = f.read("usr/lib/os-release")
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

// userNS reports whether this process is in a user namespace: the first one maps all IDs to themselves (user_namespaces(7)).
func (f files) userNS() *bool {
	text, err := f.read("proc/self/uid_map")
	if err != nil {
		return new(false) // the kernel has none
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	return new(len(fields) == 0 || len(fields) == 3 && strings.Join(fields, " ") != "0 0 4294967295")
}

// cpus returns how many CPUs are online.
func (f files) cpus() (int, error) {
	const name = "sys/devices/system/cpu/online"
	text, err := f.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f.processors()
	}
	if err != nil {
		return 0, err
	}
	n, err := parseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return n, err
}

// parseCPUs counts the CPUs of a list such as "0-3,8".
func parseCPUs(list string) (n int, err error) {
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

// processors counts CPUs on a kernel that shows no topology.
func (f files) processors() (n int, err error) {
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

// memory returns the bytes of memory and of swap.
func (f files) memory() (memory, swap int64, err error) {
	text, err := f.read("proc/meminfo")
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

// hugePages returns the preallocated bytes by the size of a page. A kernel without huge pages has none.
func (f files) hugePages() (map[int64]int64, error) {
	const dir = "sys/kernel/mm/hugepages"
	entries, err := f.list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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
		id, err := f.id(name)
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
