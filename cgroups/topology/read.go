// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
	maxFile = 64 << 10 // bytes
)

// Read reads the machine from sys/devices/system/cpu and sys/devices/system/node in root: os.DirFS("/"), or os.DirFS("/host") in a container that has the
// host's /sys at /host/sys. It returns the online CPUs of the machine, also CPUs on which the calling process may not run. It follows no symbolic link below
// these directories: the names of the links node/node<M>/cpu<N> tell the NUMA node of a CPU. If a file is missing:
//
//   - cpu/online: Read takes all CPUs with a directory cpu/cpu<N>.
//   - core_id or physical_package_id of a CPU, on s390x also book_id or drawer_id, or the link of the CPU, if there are NUMA nodes: Read omits the CPU.
//   - all directories node/node<M>: Read returns one Node without memory for each socket, with the ID of the socket. CPUs with Socket -1 are on node 0.
//   - meminfo, hugepages or distance of a NUMA node: the field of Node is zero or nil.
//   - a file below cpu/cpu<N>/cache, also if its content is invalid: Read reads no more caches of this NUMA node, as cadvisor does. The core, and all cores of
//     the node that Read has not visited yet, get Socket as Cache. Read visits cores by the names of their CPUs, cpu10 before cpu2.
//
// The kernel has no IDs of caches on s390x: Cache is 0 for all CPUs of a NUMA node with several last-level caches.
//
// Read returns an error for any other missing or invalid file, for an online CPU whose ID is not below [MaxCPUs], and if no CPU is left.
func Read(root fs.FS) (*Machine, error) {
	r := reader{root: root, machine: &Machine{}}
	if err := r.readMachine(); err != nil {
		return nil, fmt.Errorf("read the topology of the machine: %w", err)
	}
	return r.machine, nil
}

// reader reads one machine.
type reader struct {
	root    fs.FS
	machine *Machine
	cpus    CPUSet // of machine
}

func (r *reader) readMachine() error {
	online, err := r.readOnline()
	if err != nil {
		return err
	}
	nodes, err := r.listNodes()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := r.readNode(node, &online); err != nil {
			return err
		}
	}
	if len(nodes) == 0 {
		if err := r.readSockets(&online); err != nil {
			return err
		}
	}
	if len(r.machine.CPUs) == 0 {
		return fmt.Errorf("/%s: no CPU has a known core and socket", cpuDir)
	}
	slices.SortFunc(r.machine.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	return nil
}

// readOnline returns the online CPUs. Without the file these are all CPUs that have a directory.
func (r *reader) readOnline() (CPUSet, error) {
	name := path.Join(cpuDir, "online")
	text, err := r.readText(name)
	if errors.Is(err, fs.ErrNotExist) {
		return r.listCPUs()
	}
	if err != nil {
		return CPUSet{}, err
	}
	online, err := ParseCPUSet(text)
	if err != nil {
		return CPUSet{}, fmt.Errorf("/%s: %w", name, err)
	}
	return online, nil
}

// listCPUs returns the CPUs that have a directory.
func (r *reader) listCPUs() (s CPUSet, err error) {
	ids, err := r.listNumbered(cpuDir, "cpu", MaxCPUs-1)
	return NewCPUSet(ids...), err
}

// listNodes returns the IDs of the NUMA nodes in ascending order.
func (r *reader) listNodes() ([]int, error) {
	ids, err := r.listNumbered(nodeDir, "node", 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return ids, err
}

// listNumbered returns the numbers of the entries in a directory whose names consist of prefix and a number, in ascending order.
func (r *reader) listNumbered(dir, prefix string, highest uint64) (ids []int, err error) {
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || number == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		id, err := strconv.ParseUint(number, 10, 32)
		if err != nil || id > highest {
			return nil, fmt.Errorf("/%s/%.40s: its number is larger than %d", dir, e.Name(), highest)
		}
		ids = append(ids, int(id))
	}
	slices.Sort(ids)
	return ids, nil
}

// readNode reads a NUMA node with its CPUs.
func (r *reader) readNode(id int, online *CPUSet) error {
	dir := path.Join(nodeDir, fmt.Sprint("node", id))
	// Each CPU is linked in one node. The file cpulist of an emulated node has CPUs of other nodes, too.
	ids, err := r.listNumbered(dir, "cpu", MaxCPUs-1)
	if err != nil {
		return err
	}
	if err := r.addCPUs(id, NewCPUSet(ids...).Intersect(*online)); err != nil {
		return err
	}
	node := Node{ID: id}
	if node.Memory, err = r.readMemory(dir); err != nil {
		return err
	}
	if node.HugePages, err = r.readHugePages(path.Join(dir, "hugepages")); err != nil {
		return err
	}
	if node.Distances, err = r.readDistances(path.Join(dir, "distance")); err != nil {
		return err
	}
	r.machine.Nodes = append(r.machine.Nodes, node)
	return nil
}

// readSockets adds a node for each socket of a machine whose kernel knows no NUMA nodes.
func (r *reader) readSockets(online *CPUSet) error {
	nodes := map[int]*CPUSet{}
	for cpu := range online.All() {
		socket, err := r.readNumber(path.Join(cpuDir, fmt.Sprint("cpu", cpu), "topology/physical_package_id"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		node := max(socket, 0) // the kubelet has node -1, and its topology policies cannot align with that
		if nodes[node] == nil {
			nodes[node] = &CPUSet{}
		}
		nodes[node].Add(cpu)
	}
	for node, set := range nodes {
		if err := r.addCPUs(node, *set); err != nil {
			return err
		}
		r.machine.Nodes = append(r.machine.Nodes, Node{ID: node})
	}
	slices.SortFunc(r.machine.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return nil
}

// coreKey identifies a core of a NUMA node.
type coreKey struct {
	socket, core int
	book, drawer string // of s390x
}

// addCPUs adds the CPUs of a NUMA node to the machine.
func (r *reader) addCPUs(node int, set CPUSet) error {
	cores := map[coreKey][]int{} // CPUs
	keys := []coreKey{}
	for _, cpu := range sortAsText(set) {
		key, err := r.readCore(cpu)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if r.cpus.Has(cpu) {
			return fmt.Errorf("/%s/node%d/cpu%d: another node has this CPU, too", nodeDir, node, cpu)
		}
		r.cpus.Add(cpu)
		if cores[key] == nil {
			keys = append(keys, key)
		}
		cores[key] = append(cores[key], cpu)
	}
	caches := true // false: the caches of the remaining cores are not known
	for _, key := range keys {
		threads, cache := cores[key], key.socket
		if caches {
			id, found, err := r.readCache(threads[0], len(cores)*len(threads))
			if caches = err == nil; caches && found {
				cache = id
			}
		}
		for _, cpu := range threads {
			r.machine.CPUs = append(r.machine.CPUs, CPU{ID: cpu, Core: slices.Min(threads), Socket: key.socket, Node: node, Cache: cache})
		}
	}
	return nil
}

// sortAsText returns the CPUs in the order of their names, cpu10 before cpu2, in which the kubelet reads them.
func sortAsText(set CPUSet) []int {
	return slices.SortedFunc(set.All(), func(a, b int) int { return strings.Compare(strconv.Itoa(a), strconv.Itoa(b)) })
}

// readCore reads which core a CPU is a thread of.
func (r *reader) readCore(cpu int) (key coreKey, err error) {
	dir := path.Join(cpuDir, fmt.Sprint("cpu", cpu), "topology")
	if key.core, err = r.readNumber(path.Join(dir, "core_id")); err != nil {
		return key, err
	}
	if key.socket, err = r.readNumber(path.Join(dir, "physical_package_id")); err != nil || runtime.GOARCH != "s390x" {
		return key, err
	}
	if key.book, err = r.readText(path.Join(dir, "book_id")); err != nil {
		return key, err
	}
	key.drawer, err = r.readText(path.Join(dir, "drawer_id"))
	return key, err
}

// readCache returns the ID of the first cache above level 2 that not all CPUs of the NUMA node share. nodeCPUs is the number of those.
func (r *reader) readCache(cpu, nodeCPUs int) (id int, found bool, err error) {
	dir := path.Join(cpuDir, fmt.Sprint("cpu", cpu), "cache")
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return 0, false, err
	}
	for _, e := range entries { // sorted by name, like the paths of the kubelet
		if !strings.HasPrefix(e.Name(), "index") {
			continue
		}
		cache := path.Join(dir, e.Name())
		level, number, err := r.readCacheID(cache)
		if err != nil {
			return 0, false, err
		}
		list, err := r.readText(path.Join(cache, "shared_cpu_list"))
		if err != nil {
			return 0, false, err
		}
		shared, err := ParseCPUSet(list)
		if err != nil {
			return 0, false, err
		}
		if level > 2 && shared.Len() != nodeCPUs && !found {
			id, found = number, true
		}
	}
	return id, found, nil
}

// readCacheID returns the level and the ID of the cache in a directory. Other files of which the kubelet reads the cache must exist, too.
func (r *reader) readCacheID(dir string) (level, id int, err error) {
	for _, name := range [...]string{"size", "type"} {
		if _, err := r.readText(path.Join(dir, name)); err != nil {
			return 0, 0, err
		}
	}
	if level, err = r.readNumber(path.Join(dir, "level")); err != nil || runtime.GOARCH == "s390x" { // which has no IDs
		return level, 0, err
	}
	text, err := r.readText(path.Join(dir, "id"))
	if err != nil {
		return 0, 0, err
	}
	number, err := strconv.ParseUint(text, 10, 32)
	return level, int(number), err
}

// readMemory returns the memory of a NUMA node in bytes.
func (r *reader) readMemory(dir string) (uint64, error) {
	name := path.Join(dir, "meminfo")
	text, err := r.readText(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(text, "MemTotal:")
	if fields := strings.Fields(rest); found && len(fields) >= 2 && fields[1] == "kB" {
		if kilobytes, err := strconv.ParseUint(fields[0], 10, 53); err == nil {
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("/%s: %.100q has no MemTotal in kB", name, text)
}

// readHugePages returns the huge pages of a NUMA node, the smallest size first.
func (r *reader) readHugePages(dir string) (list []HugePages, err error) {
	entries, err := fs.ReadDir(r.root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "hugepages-")
		text, isSize := strings.CutSuffix(text, "kB")
		size, err := strconv.ParseUint(text, 10, 53)
		if !ok || !isSize || err != nil {
			return nil, fmt.Errorf("/%s: %.100q is no size of huge pages", dir, e.Name())
		}
		name := path.Join(dir, e.Name(), "nr_hugepages")
		count, err := r.readNumber(name)
		if err != nil {
			return nil, err
		}
		if count < 0 {
			return nil, fmt.Errorf("/%s: the number of huge pages is %d", name, count)
		}
		list = append(list, HugePages{Size: size << 10, Count: uint64(count)})
	}
	slices.SortFunc(list, func(a, b HugePages) int { return int(a.Size>>10) - int(b.Size>>10) })
	return list, nil
}

// readDistances returns the distances from a NUMA node to all nodes.
func (r *reader) readDistances(name string) (list []int, err error) {
	text, err := r.readText(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for word := range strings.FieldsSeq(text) {
		distance, err := strconv.ParseUint(word, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("/%s: %.100q is no list of distances", name, text)
		}
		list = append(list, int(distance))
	}
	return list, nil
}

// readNumber reads a file with one number. An unknown socket is -1.
func (r *reader) readNumber(name string) (int, error) {
	text, err := r.readText(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("/%s: %.40q is no number", name, text)
	}
	return int(n), nil
}

// readText reads a file of at most 64 KiB, without the space around its content.
func (r *reader) readText(name string) (string, error) {
	file, err := r.root.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("/%s: it has more than %d bytes", name, maxFile)
	}
	return strings.TrimSpace(string(data)), nil
}
