// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// ReclaimAll as the amount of [ImageGC.Reclaim] removes all images that can be removed.
const ReclaimAll = math.MaxUint64

// ImageGC frees space on the file system of images. [*Images] implements it.
type ImageGC interface {
	// Reclaim removes unused images, least recently used first, until want more bytes are available than before. It returns the
	// number of bytes freed. If this is less than want, the error is a [*ShortError] with the reasons why the remaining images
	// stay. For [ReclaimAll] only failed removals are an error. A want of zero does nothing.
	//
	// Images used by containers or pinned by the runtime are never removed. Concurrent calls run one after another. When ctx
	// ends, no further image is removed, and freed has the bytes freed so far.
	Reclaim(ctx context.Context, want uint64) (freed uint64, err error)
}

// ImageGCFunc implements [ImageGC] by a function.
type ImageGCFunc func(ctx context.Context, want uint64) (freed uint64, err error)

// Reclaim calls f.
func (f ImageGCFunc) Reclaim(ctx context.Context, want uint64) (freed uint64, err error) {
	return f(ctx, want)
}

// KeepReason is the reason why an image stays, as text for errors.
type KeepReason string

// The reasons why images stay. If several apply, the first in this list counts.
const (
	KeepInvalid  KeepReason = "without an ID"              // the runtime reports no ID to remove it by
	KeepUsed     KeepReason = "used by containers"         // including exited containers
	KeepPinned   KeepReason = "pinned by the runtime"      // for example the sandbox image
	KeepNamed    KeepReason = "named by pods of this node" // or possibly named by a pod that no source has reported yet
	KeepImported KeepReason = "known to no registry"       // it could not be pulled again
	KeepYoung    KeepReason = "younger than the minimum age"
	KeepClaimed  KeepReason = "about to be used"           // Puller.Claim refused to release it
	KeepFailed   KeepReason = "not removed by the runtime" // the error has the cause
	KeepEnough   KeepReason = "not in the way"             // enough space was free without its removal
)

// reasonOrder returns all reasons to keep an image, in the order in which the text of a [ShortError] lists them.
func reasonOrder() []KeepReason {
	return []KeepReason{KeepUsed, KeepPinned, KeepNamed, KeepImported, KeepYoung, KeepClaimed, KeepFailed, KeepInvalid, KeepEnough}
}

// Tally counts the images that stay for one reason.
type Tally struct {
	Images int
	Bytes  uint64 // sum of the sizes reported by the runtime; shared layers count for each image
}

// ShortError means that less space was freed than requested.
type ShortError struct {
	Wanted, Freed uint64 // bytes
	Kept          map[KeepReason]Tally
	Err           error // errors of failed removals; nil: none
}

// Error returns a text with the freed bytes, the requested bytes, and the number of images that were kept for each reason.
func (e *ShortError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "removing images made %d bytes available, and %d were wanted", e.Freed, e.Wanted)
	between := "; what stayed: "
	for _, why := range reasonOrder() {
		if kept, ok := e.Kept[why]; ok {
			fmt.Fprintf(&b, "%s%d %s (%s)", between, kept.Images, why, formatBytes(kept.Bytes))
			between = ", "
		}
	}
	if between != ", " {
		b.WriteString("; there are no others")
	}
	if e.Err != nil {
		b.WriteString("; " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the errors of failed removals.
func (e *ShortError) Unwrap() error { return e.Err }

// countKept returns the number of kept images and their total size, by the reason to keep them.
func countKept(kept []KeptImage) map[KeepReason]Tally {
	counts := map[KeepReason]Tally{}
	for i := range kept {
		t := counts[kept[i].Reason]
		t.Images++
		t.Bytes = addSaturated(t.Bytes, kept[i].Size)
		counts[kept[i].Reason] = t
	}
	return counts
}

// addSaturated returns a+b, at most the largest uint64.
func addSaturated(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// formatBytes returns a number of bytes with a binary unit, for example "1.5 GiB".
func formatBytes(bytes uint64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	v, units := float64(bytes), "KMGT"
	for v >= 1<<10 && units != "" {
		v, units = v/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[3-len(units)])
}
