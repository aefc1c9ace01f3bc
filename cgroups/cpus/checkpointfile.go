// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// ReadCheckpoint reads the kubelet's file cpu_manager_state at path, for [AllocatorOptions.Previous]. It follows no symbolic link, and writes nothing.
// If the file does not exist, the error wraps [fs.ErrNotExist]; other errors have the kubelet's text. With Kubelet.RefuseChanged, ReadCheckpoint returns
// an error for a file of another policy.
func (p *Policy) ReadCheckpoint(path string) (State, error) {
	content, err := plainfile.Read(path, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, err
	}
	var d checkpointData
	if err == nil {
		d, err = decodeVersions(content)
	}
	if err == nil && p.kubelet.RefuseChanged && d.PolicyName != p.Name() {
		err = fmt.Errorf("configured policy %q differs from state checkpoint policy %q", p.Name(), d.PolicyName)
	}
	var s State
	if err == nil {
		s, err = d.parseState()
	}
	if err != nil {
		return State{}, fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete the CPU manager checkpoint file %q before restarting Kubelet",
			err, path)
	}
	return s, nil
}

// ExportTo returns a function for [AllocatorOptions.Export] that replaces the file cpu_manager_state at path. A kubelet that takes the node over
// continues with this file. The returned function creates the directory of path, and must not be called concurrently.
func ExportTo(path string) func(policy string, s State) error {
	return func(policy string, s State) error {
		content, err := EncodeCheckpoint(policy, s)
		if err != nil {
			return fmt.Errorf("write checkpoint %s: %w", path, err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("write checkpoint %s: %w", path, err)
		}
		if err := atomicfile.Clean(path); err != nil {
			return err
		}
		return atomicfile.Replace(path, content, 0o600) // a power failure ends the containers with the CPUs
	}
}
