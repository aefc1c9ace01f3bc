// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
)

// measureDisk returns a function that measures the file system that a runtime keeps its images on, the first that it names, for
// ImageOptions.Disk. The runtime is asked once where that is. A call that hangs, as one of a dead mount does, costs a thread until
// it returns: meanwhile the file system is not asked again.
func measureDisk(images cri.Images) func(ctx context.Context) (Disk, error) {
	m := &meter{images: images, turn: make(chan struct{}, 1)}
	return m.measure
}

// meter measures one file system.
type meter struct {
	images cri.Images
	path   string        // where it is; empty: not known yet. Whoever has the turn has it.
	turn   chan struct{} // has an element while somebody measures
}

// errDiskHangs is why a file system is not measured.
var errDiskHangs = errors.New("an earlier measurement of the file system of images has not returned")

func (m *meter) measure(ctx context.Context) (Disk, error) {
	select {
	case m.turn <- struct{}{}:
	default:
		return Disk{}, errDiskHangs
	}
	if m.path == "" {
		if err := m.find(ctx); err != nil {
			<-m.turn
			return Disk{}, err
		}
	}
	type answer struct {
		disk Disk
		err  error
	}
	answers := make(chan answer, 1)
	path := m.path
	go func() {
		disk, err := statDisk(path)
		<-m.turn
		answers <- answer{disk, err}
	}()
	select {
	case a := <-answers:
		return a.disk, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // it came at the last moment
		return a.disk, a.err
	default:
		return Disk{}, fmt.Errorf("statfs %s: %w", path, ctx.Err())
	}
}

// find asks the runtime where its images are.
func (m *meter) find(ctx context.Context) error {
	usage, err := m.images.ImageUsage(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("file system of images: %w", err)
	case len(usage.Images) == 0 || usage.Images[0].Mountpoint == "":
		return errors.New("file system of images: the runtime does not say where it is: ImageOptions.Disk has to")
	}
	m.path = usage.Images[0].Mountpoint
	return nil
}
