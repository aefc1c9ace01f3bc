// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"slices"
)

// Layout is which filesystems a node has. Source: buildSignalToRankFunc and buildSignalToNodeReclaimFuncs in
// pkg/kubelet/eviction/helpers.go.
type Layout uint8

// Layouts. The zero value is one filesystem.
const (
	SingleFS         Layout = iota // volumes, logs, images and writable layers are on one filesystem
	DedicatedImageFS               // images and writable layers are on one of their own
	SplitFS                        // only images are; writable layers are beside volumes and logs
)

// numLayouts is how many layouts there are.
const numLayouts = 3

// String returns the name of the layout.
func (l Layout) String() string {
	switch l {
	case SingleFS:
		return "single"
	case DedicatedImageFS:
		return "dedicated"
	case SplitFS:
		return "split"
	default:
		return fmt.Sprintf("Layout(%d)", uint8(l))
	}
}

// Thresholds returns the thresholds for this layout: those of containerfs are those of the filesystem that writable layers are
// on. The error names thresholds of containerfs in the list, which count nothing; the list is right all the same. Source:
// UpdateContainerFsThresholds in pkg/kubelet/eviction/helpers.go.
func (l Layout) Thresholds(list []Threshold) ([]Threshold, error) {
	var errs []error
	kept := make([]Threshold, 0, len(list)+4)
	for _, t := range list {
		if t.Signal == ContainerFSAvailable || t.Signal == ContainerFSInodesFree {
			errs = append(errs, fmt.Errorf("%s: ignored, the thresholds of containerfs are those of %s", t, l.containerFS(NodeFSAvailable, ImageFSAvailable)))
			continue
		}
		kept = append(kept, t)
	}
	for _, c := range []struct{ from, to Signal }{
		{l.containerFS(NodeFSAvailable, ImageFSAvailable), ContainerFSAvailable},
		{l.containerFS(NodeFSInodesFree, ImageFSInodesFree), ContainerFSInodesFree},
	} {
		kept = appendCopies(kept, c.from, c.to)
	}
	return kept, errors.Join(errs...)
}

// containerFS returns the one of two signals that is of the filesystem of writable layers.
func (l Layout) containerFS(node, image Signal) Signal {
	if l == DedicatedImageFS {
		return image
	}
	return node
}

// appendCopies copies the hard and the soft threshold of a signal for another one. Of several the last counts.
func appendCopies(list []Threshold, from, to Signal) []Threshold {
	for _, hard := range []bool{true, false} {
		is := func(t Threshold) bool { return t.Signal == from && t.Hard() == hard }
		copied := Threshold{}
		for _, t := range list {
			if is(t) {
				copied = t
			}
		}
		if copied.Value != (Amount{}) {
			copied.Signal = to
			list = append(list, copied)
		}
	}
	return list
}

// ReclaimKinds returns what is removed before a pod is evicted for a signal.
func (l Layout) ReclaimKinds(s Signal) ReclaimKind {
	image := s == ImageFSAvailable || s == ImageFSInodesFree
	node := s == NodeFSAvailable || s == NodeFSInodesFree
	switch {
	case s.condition() != 1:
		return 0
	case l == SingleFS, l == DedicatedImageFS && !node:
		return ReclaimContainers | ReclaimImages
	case l == DedicatedImageFS:
		return 0
	case image:
		return ReclaimImages
	default:
		return ReclaimContainers
	}
}

// parts says what of a pod's local storage counts.
type parts struct{ rootfs, logs, volumes bool }

// counts returns what of a pod's local storage is on the filesystem of a signal.
func (l Layout) counts(s Signal) parts {
	node := slices.Contains([]Signal{NodeFSAvailable, NodeFSInodesFree}, s)
	image := slices.Contains([]Signal{ImageFSAvailable, ImageFSInodesFree}, s)
	switch {
	case l == DedicatedImageFS && node:
		return parts{logs: true, volumes: true}
	case l == DedicatedImageFS:
		return parts{rootfs: true}
	case l == SplitFS && image:
		return parts{}
	default:
		return parts{rootfs: true, logs: true, volumes: true}
	}
}
