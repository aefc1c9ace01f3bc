// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"io/fs"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// Files are the paths of the files with the exclusive CPUs and the memory of containers.
type Files struct {
	Record           string // path of the record of exclusive CPUs; empty: none
	Checkpoint       string // path of cpu_manager_state of a kubelet, which NewNode reads if Record does not exist; empty: not read
	MemoryRecord     string // path of the record of memory; empty: none
	MemoryCheckpoint string // path of memory_manager_state of a kubelet, which NewNode reads if MemoryRecord does not exist; empty: not read
	// Export overwrites Checkpoint and MemoryCheckpoint in NewNode and after each change, for a kubelet that takes the node over. Both paths are required then.
	Export bool
}

// FilesIn returns the files "cpus" and "memory" of the agent, and the files "cpu_manager_state" and "memory_manager_state" of a kubelet, in dir. Use the
// kubelet's root directory to take its place; no kubelet may run beside the agent. If dir is empty, FilesIn returns the zero value.
func FilesIn(dir string, export bool) Files {
	if dir == "" {
		return Files{}
	}
	return Files{
		Record: filepath.Join(dir, "cpus"), Checkpoint: filepath.Join(dir, cpus.CheckpointName),
		MemoryRecord: filepath.Join(dir, "memory"), MemoryCheckpoint: filepath.Join(dir, numa.CheckpointName), Export: export,
	}
}

// NewNode returns a Placement for the machine with this root directory, such as os.DirFS("/"): it reads the machine, creates the policies and calls [New].
// config is the configuration of the kubelet's CPU manager, and opts.MemoryConfig that of its memory manager. NewNode overwrites Policy, MemoryPolicy,
// CPUs.Record, CPUs.Previous, CPUs.Export, Memory.Record, Memory.Checkpoint and Memory.Export of opts.
//
// The errors are those of [topology.Read], [cpus.NewPolicy], [numa.NewPolicy] and [New], and one for Export without the paths that it needs. If the CPU manager
// policy is none and the memory manager policy None, an error of topology.Read is only logged. After such an error the Placement changes no CPUs and no
// memory, and uses no files.
func NewNode(root fs.FS, config cpus.Config, files Files, opts Options) (*Placement, error) {
	if files.Export && (files.Checkpoint == "" || files.MemoryCheckpoint == "") {
		return nil, errors.New("placement: Files.Export needs Files.Checkpoint and Files.MemoryCheckpoint, the files to write")
	}
	machine, err := topology.Read(root)
	if err != nil && config.Policy != cpus.PolicyStatic && opts.MemoryConfig.Policy != numa.PolicyStatic { // no container has exclusive CPUs
		if opts.Logger != nil {
			opts.Logger.Warn("the CPUs of the machine are not known", "error", err)
		}
		machine, err = &topology.Machine{CPUs: make([]topology.CPU, 1)}, nil
		files = Files{} // the CPUs and memory in the files may be those of a machine that can be read after the next start
	}
	if err != nil {
		return nil, err
	}
	if opts.Policy, err = cpus.NewPolicy(machine, config); err != nil {
		return nil, err
	}
	if opts.MemoryPolicy, err = numa.NewPolicy(machine, opts.MemoryConfig); err != nil {
		return nil, err
	}
	opts.CPUs.Record = files.Record
	if files.Checkpoint != "" {
		opts.CPUs.Previous = func() (cpus.State, error) { return opts.Policy.ReadCheckpoint(files.Checkpoint) }
	}
	if files.Export {
		opts.CPUs.Export = cpus.ExportTo(files.Checkpoint)
	}
	opts.Memory.Record, opts.Memory.Checkpoint, opts.Memory.Export = files.MemoryRecord, files.MemoryCheckpoint, files.Export
	return New(opts)
}

// ReadNodes returns t with the NUMA nodes of the machine with this root directory, for device.Options.Topology of the allocator in Options.Devices. Under the
// topology manager policy none, it reads nothing, and returns t. The error is that of [topology.Read].
func ReadNodes(root fs.FS, t device.Topology) (device.Topology, error) {
	if t.Policy == device.None {
		return t, nil
	}
	machine, err := topology.Read(root)
	if err == nil {
		t.Nodes = numaNodes(machine)
	}
	return t, err
}

// numaNodes returns the NUMA nodes of a machine for package device.
func numaNodes(machine *topology.Machine) []device.NUMANode {
	nodes := make([]device.NUMANode, len(machine.Nodes))
	for i := range machine.Nodes {
		nodes[i] = device.NUMANode{ID: machine.Nodes[i].ID, Distances: machine.Nodes[i].Distances}
	}
	return nodes
}

// CPUUsage counts the CPUs in use, for prom.Metrics.CPUs.
func (p *Placement) CPUUsage() cpus.Usage { return p.opts.Policy.Usage(p.allocator.State()) }

// Capacity returns the devices for the status of the Node, and the resources that the status must not have any more; see poddevice.Devices.Capacity.
func (p *Placement) Capacity() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
	if p == nil {
		return nil, nil, nil
	}
	return p.opts.Devices.Capacity()
}

// WithoutDevices returns node without the resources of device plugins, for the admission checks; see poddevice.Devices.WithoutDevices. p and node may be
// nil.
func (p *Placement) WithoutDevices(node *corev1.Node) *corev1.Node {
	if p == nil {
		return node
	}
	return p.opts.Devices.WithoutDevices(node)
}
