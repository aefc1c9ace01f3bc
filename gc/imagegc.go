// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// All is more than any file system has: [ImageGC.Reclaim] removes all that can go.
const All = math.MaxUint64

// ImageGC makes room on the file system of images. [*Images] is one.
type ImageGC interface {
	// Reclaim removes images that nothing uses, those first that were unused for the longest time, until want more bytes are
	// available than before, and returns how many that are. Where there are less, the error is a [*ShortError], which says why
	// each image that is left stays. Zero bytes are there already. For [All] it is no error that there were less; an image that
	// could not be removed is.
	//
	// An image that a container uses is not removed, nor one that the runtime has pinned. Of calls at the same time one waits for
	// the others. When ctx ends nothing more is removed, and freed says what was.
	Reclaim(ctx context.Context, want uint64) (freed uint64, err error)
}

// ImageGCFunc adapts a function to an [ImageGC].
type ImageGCFunc func(ctx context.Context, want uint64) (freed uint64, err error)

// Reclaim calls f.
func (f ImageGCFunc) Reclaim(ctx context.Context, want uint64) (freed uint64, err error) {
	return f(ctx, want)
}

// Why is why an image stays, in words.
type Why string

// Why images stay. An image for which there are several reasons has the first of them.
const (
	WhyInvalid  Why = "without an ID"              // the runtime does not say how to remove it
	WhyUsed     Why = "used by containers"         // also by such as have exited
	WhyPinned   Why = "pinned by the runtime"      // as the image of sandboxes is
	WhyWanted   Why = "named by pods of this node" // that want to run, or may be while not all are known
	WhyImported Why = "known to no registry"       // it could not be pulled again
	WhyYoung    Why = "younger than the minimum age"
	WhyHeld     Why = "about to be used"           // whoever pulls did not give it away
	WhyFailed   Why = "not removed by the runtime" // the error says why
	WhyEnough   Why = "not in the way"             // there was room enough without
)

// order is the order of reasons in texts.
func order() []Why {
	return []Why{WhyUsed, WhyPinned, WhyWanted, WhyImported, WhyYoung, WhyHeld, WhyFailed, WhyInvalid, WhyEnough}
}

// Tally counts images that stay for one reason.
type Tally struct {
	Images int
	Bytes  uint64 // as the runtime reports them: what images share counts for each
}

// ShortError is why less room was made than was wanted.
type ShortError struct {
	Wanted, Freed uint64 // bytes
	Kept          map[Why]Tally
	Err           error // of images that could not be removed; nil: there is none
}

// Error says how much is missing, and for each reason what stayed.
func (e *ShortError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "removing images made %d bytes available, and %d were wanted", e.Freed, e.Wanted)
	between := "; what stayed: "
	for _, why := range order() {
		if kept, ok := e.Kept[why]; ok {
			fmt.Fprintf(&b, "%s%d %s (%s)", between, kept.Images, why, size(kept.Bytes))
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

// Unwrap returns the errors of images that could not be removed.
func (e *ShortError) Unwrap() error { return e.Err }

// tally counts what was kept.
func tally(kept []Kept) map[Why]Tally {
	counts := map[Why]Tally{}
	for i := range kept {
		t := counts[kept[i].Why]
		t.Images++
		t.Bytes = add(t.Bytes, kept[i].Size)
		counts[kept[i].Why] = t
	}
	return counts
}

// add is a sum that stops at the largest number.
func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// size writes a number of bytes for people, as the kubelet's events have it.
func size(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n), "KMGT"
	for v >= 1<<10 && units != "" {
		v, units = v/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[3-len(units)])
}
