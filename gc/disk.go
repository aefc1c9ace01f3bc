// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
)

// newDiskFunc returns a function that measures the file system of images. While a measurement hangs, other measurements
// fail.
func newDiskFunc(images cri.Images) func(ctx context.Context) (Disk, error) {
	m := &diskMeter{images: images, slot: make(chan struct{}, 1)}
	return m.measure
}

// diskMeter measures the file system of images.
type diskMeter struct {
	images     cri.Images
	mountpoint string        // mount point; empty: not requested yet; guarded by slot
	slot       chan struct{} // held by the running measurement
}

// errDiskHangs is the error of a measurement that is refused because a previous measurement hangs.
var errDiskHangs = errors.New("an earlier measurement of the file system of images has not returned")

func (m *diskMeter) measure(ctx context.Context) (Disk, error) {
	select {
	case m.slot <- struct{}{}:
	default:
		return Disk{}, errDiskHangs
	}
	if m.mountpoint == "" {
		if err := m.findMountpoint(ctx); err != nil {
			<-m.slot
			return Disk{}, err
		}
	}
	type answer struct {
		disk Disk
		err  error
	}
	answers := make(chan answer, 1)
	path := m.mountpoint
	go func() {
		disk, err := statDisk(path)
		<-m.slot
		answers <- answer{disk, err}
	}()
	select {
	case a := <-answers:
		return a.disk, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // it returned at the last moment
		return a.disk, a.err
	default:
		return Disk{}, fmt.Errorf("statfs %s: %w", path, ctx.Err())
	}
}

// findMountpoint requests the image file systems from the runtime and stores the mount point of the first one.
func (m *diskMeter) findMountpoint(ctx context.Context) error {
	usage, err := m.images.ImageUsage(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("file system of images: %w", err)
	case len(usage.Images) == 0 || usage.Images[0].Mountpoint == "":
		return errors.New("file system of images: the runtime does not say where it is: ImageOptions.Disk has to")
	}
	m.mountpoint = usage.Images[0].Mountpoint
	return nil
}
