// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// ImagePolicy says when images go. Its fields are the kubelet's imageGCHighThresholdPercent, imageGCLowThresholdPercent,
// imageMinimumGCAge and imageMaximumGCAge, and mean what they mean there: zero is no default but zero.
type ImagePolicy struct {
	// HighThresholdPercent is how full the file system of images has to be for images to go, and LowThresholdPercent how full
	// it may be then. 100 for both means that they do not go for want of room.
	HighThresholdPercent, LowThresholdPercent int
	// MinAge is for how long an image is known before it goes.
	MinAge time.Duration
	// MaxAge is after how long without use an image goes although there is room. Zero means that it does not.
	MaxAge time.Duration
	// Kubelet leaves off what goes beyond the kubelet: images that no registry gives back may go; MinAge does not keep an
	// image from going by MaxAge, and one that was never used has no age; and sizes are believed, not measured.
	Kubelet bool
}

// DefaultImagePolicy returns the kubelet's defaults: from 85 to 80 percent, 2 minutes, and no maximum age.
func DefaultImagePolicy() ImagePolicy {
	return ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}
}

// Validate returns what is wrong with the policy. Source: NewImageGCManager in pkg/kubelet/images/image_gc_manager.go and
// ValidateKubeletConfiguration, but that both thresholds may be the same.
func (p ImagePolicy) Validate() error {
	switch {
	case p.HighThresholdPercent < 0 || p.HighThresholdPercent > 100:
		return fmt.Errorf("image policy: HighThresholdPercent: %d must be from 0 to 100", p.HighThresholdPercent)
	case p.LowThresholdPercent < 0 || p.LowThresholdPercent > 100:
		return fmt.Errorf("image policy: LowThresholdPercent: %d must be from 0 to 100", p.LowThresholdPercent)
	case p.LowThresholdPercent > p.HighThresholdPercent:
		return fmt.Errorf("image policy: LowThresholdPercent: %d must not be more than HighThresholdPercent, %d",
			p.LowThresholdPercent, p.HighThresholdPercent)
	case p.MinAge < 0:
		return fmt.Errorf("image policy: MinAge: %s must not be negative", p.MinAge)
	case p.MaxAge < 0:
		return fmt.Errorf("image policy: MaxAge: %s must not be negative", p.MaxAge)
	case p.MaxAge > 0 && p.MaxAge <= p.MinAge:
		return fmt.Errorf("image policy: MaxAge: %s must be more than MinAge, %s", p.MaxAge, p.MinAge)
	}
	return nil
}

// never reports whether no image ever goes by itself.
func (p ImagePolicy) never() bool { return p.HighThresholdPercent == 100 && p.MaxAge == 0 }

// Disk is what a file system has, in bytes.
type Disk struct {
	Capacity  uint64
	Available uint64 // more than Capacity counts as Capacity
}

// errNoCapacity is the error of a measurement that is wrong.
var errNoCapacity = errors.New("the file system of images has a capacity of 0 bytes")

// Used returns how full a file system is, in percent, rounded up. One without capacity is full.
func (d Disk) Used() int {
	if d.Capacity == 0 {
		return 100
	}
	return 100 - int(scale(min(d.Available, d.Capacity), 100, d.Capacity))
}

// Excess reports whether images have to go, and how many bytes are to be available more then, which may be none. A
// capacity of zero is an error. Source: GarbageCollect in pkg/kubelet/images/image_gc_manager.go.
func (p ImagePolicy) Excess(d Disk) (want uint64, over bool, err error) {
	if d.Capacity == 0 {
		return 0, false, errNoCapacity
	}
	if d.Used() < p.HighThresholdPercent {
		return 0, false, nil
	}
	available := min(d.Available, d.Capacity)
	return max(scale(d.Capacity, uint64(100-p.LowThresholdPercent), 100), available) - available, true, nil
}

// scale returns a*b/c, rounded down, for b <= c: it is not more than a, and nothing overflows on the way. It also holds for
// a <= c, where the result is at most b.
func scale(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	quotient, _ := bits.Div64(hi, lo, c)
	return quotient
}
