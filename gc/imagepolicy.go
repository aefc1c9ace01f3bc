// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// ImagePolicy decides when images are removed. Its fields are the kubelet's imageGCHighThresholdPercent,
// imageGCLowThresholdPercent, imageMinimumGCAge and imageMaximumGCAge. Zero is a valid value, not a default.
type ImagePolicy struct {
	// HighThresholdPercent is the disk usage at which images are removed, and LowThresholdPercent the usage to reach. Both 100:
	// images are not removed for space.
	HighThresholdPercent, LowThresholdPercent int
	// MinAge is the least time since the detection of an image before its removal.
	MinAge time.Duration
	// MaxAge is the time without use after which an image is removed even without need for space. Zero: never.
	MaxAge time.Duration
	// Kubelet selects the kubelet's behaviour: images that no registry has may be removed; MinAge does not apply to removals for
	// MaxAge; images that were never used have no age; freed bytes are sums of sizes, not measured.
	Kubelet bool
}

// DefaultImagePolicy returns the kubelet's default policy. When 85 percent of the disk are used, it removes images until
// only 80 percent are used. It keeps images younger than 2 minutes. It has no maximum age.
func DefaultImagePolicy() ImagePolicy {
	return ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}
}

// Validate returns an error that names the first invalid field. Differs from the kubelet: the two thresholds may be equal.
// Source: NewImageGCManager in pkg/kubelet/images/image_gc_manager.go and ValidateKubeletConfiguration.
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

// isDisabled reports whether the policy never removes an image. Neither a full disk nor the age of an image then causes a
// removal.
func (p ImagePolicy) isDisabled() bool { return p.HighThresholdPercent == 100 && p.MaxAge == 0 }

// Disk is the size of a file system in bytes.
type Disk struct {
	Capacity  uint64
	Available uint64 // a value above Capacity counts as Capacity
}

// errNoCapacity is the error of an impossible measurement.
var errNoCapacity = errors.New("the file system of images has a capacity of 0 bytes")

// Used returns how much of the disk is used, in percent and rounded up. It returns 100 if Capacity is zero.
func (d Disk) Used() int {
	if d.Capacity == 0 {
		return 100
	}
	return 100 - int(mulDiv(min(d.Available, d.Capacity), 100, d.Capacity))
}

// Excess returns how many bytes to free if the disk usage has reached the high threshold. Then over is true, and want is the
// amount down to the low threshold, possibly zero. It returns an error if d.Capacity is zero. Source: GarbageCollect in
// pkg/kubelet/images/image_gc_manager.go.
func (p ImagePolicy) Excess(d Disk) (want uint64, over bool, err error) {
	if d.Capacity == 0 {
		return 0, false, errNoCapacity
	}
	if d.Used() < p.HighThresholdPercent {
		return 0, false, nil
	}
	available := min(d.Available, d.Capacity)
	return max(mulDiv(d.Capacity, uint64(100-p.LowThresholdPercent), 100), available) - available, true, nil
}

// mulDiv returns a*b/c, rounded down. Either a or b must be at most c, because mulDiv panics if the result overflows.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	quotient, _ := bits.Div64(hi, lo, c)
	return quotient
}
