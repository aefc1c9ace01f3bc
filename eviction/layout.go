// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"slices"
)

// Layout describes the filesystems of a node. Source: buildSignalToRankFunc and buildSignalToNodeReclaimFuncs in
// pkg/kubelet/eviction/helpers.go.
type Layout uint8

// The layouts; zero is a single filesystem.
const (
	SingleFS         Layout = iota // volumes, logs, images and writable layers on one filesystem
	DedicatedImageFS               // images and writable layers on a separate filesystem
	SplitFS                        // only images on a separate filesystem
)

const numLayouts = 3

// String returns "single", "dedicated" or "split".
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

// Thresholds returns list with thresholds for containerfs, the filesystem with the writable layers. They are those of the
// filesystem that has these layers, nodefs or imagefs. Thresholds for containerfs in list are ignored and named in the
// error; the result is valid even then. Source: UpdateContainerFsThresholds in pkg/kubelet/eviction/helpers.go.
func (l Layout) Thresholds(list []Threshold) ([]Threshold, error) {
	var errs []error
	kept := make([]Threshold, 0, len(list)+4)
	for _, t := range list {
		if t.Signal == ContainerFSAvailable || t.Signal == ContainerFSInodesFree {
			errs = append(errs, fmt.Errorf("%s: ignored, the thresholds of containerfs are those of %s", t, l.containerFSSignal(NodeFSAvailable, ImageFSAvailable)))
			continue
		}
		kept = append(kept, t)
	}
	for _, c := range []struct{ from, to Signal }{
		{l.containerFSSignal(NodeFSAvailable, ImageFSAvailable), ContainerFSAvailable},
		{l.containerFSSignal(NodeFSInodesFree, ImageFSInodesFree), ContainerFSInodesFree},
	} {
		kept = appendCopies(kept, c.from, c.to)
	}
	return kept, errors.Join(errs...)
}

// containerFSSignal returns the signal of the filesystem with the writable layers: image for imagefs, or node for nodefs.
func (l Layout) containerFSSignal(node, image Signal) Signal {
	if l == DedicatedImageFS {
		return image
	}
	return node
}

// appendCopies appends copies of the thresholds of signal from, with signal to: the last hard and the last soft one.
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

// ReclaimKinds returns which objects to remove before a pod is evicted for this signal: terminated containers, unused images
// or both. Zero means that a pod is evicted at once.
func (l Layout) ReclaimKinds(signal Signal) ReclaimKind {
	image := signal == ImageFSAvailable || signal == ImageFSInodesFree
	node := signal == NodeFSAvailable || signal == NodeFSInodesFree
	switch {
	case signal.conditionIndex() != 1:
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

// storageParts selects the parts of a pod's local storage that count for a filesystem.
type storageParts struct{ rootfs, logs, volumes bool }

// countedStorage returns which parts of a pod's local storage are on the filesystem that the signal measures.
func (l Layout) countedStorage(signal Signal) storageParts {
	node := slices.Contains([]Signal{NodeFSAvailable, NodeFSInodesFree}, signal)
	image := slices.Contains([]Signal{ImageFSAvailable, ImageFSInodesFree}, signal)
	switch {
	case l == DedicatedImageFS && node:
		return storageParts{logs: true, volumes: true}
	case l == DedicatedImageFS:
		return storageParts{rootfs: true}
	case l == SplitFS && image:
		return storageParts{}
	default:
		return storageParts{rootfs: true, logs: true, volumes: true}
	}
}
