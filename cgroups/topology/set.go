// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPUs is the number of CPUs that a [CPUSet] can hold. Their IDs are 0 to MaxCPUs-1.
const MaxCPUs = 2048

// maxListed is the largest number of CPUs in a list, which may have a CPU more than once: a long list would otherwise take minutes.
const maxListed = 2 * MaxCPUs

// CPUSet is a set of CPUs. The zero value is empty. Sets are comparable with ==.
type CPUSet struct {
	words [MaxCPUs / 64]uint64
}

// NewCPUSet returns the set of CPUs with these IDs. It panics if an ID is negative or not below [MaxCPUs].
func NewCPUSet(ids ...int) (s CPUSet) {
	for _, id := range ids {
		s.Add(id)
	}
	return s
}

// Add adds a CPU to the set. It panics if the ID is negative or not below [MaxCPUs].
func (s *CPUSet) Add(id int) { s.words[id/64] |= 1 << (id % 64) }

// ParseCPUSet parses the kernel's list format, such as "0-3,8". The empty text is the empty set. IDs may be in any order and may be repeated. ParseCPUSet
// returns an error for more than 4,096 IDs with repetitions, a stride such as "0-8:2", a range from a higher to a lower ID, an ID not below [MaxCPUs], and for
// white space: cut off the newline with which files of the kernel end. Source: cpuset(7).
func ParseCPUSet(text string) (s CPUSet, err error) {
	if text == "" {
		return s, nil
	}
	listed := 0
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := parseID(from)
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list %.100q: %w", text, err)
		}
		last := first
		if isRange {
			if last, err = parseID(to); err != nil {
				return CPUSet{}, fmt.Errorf("CPU list %.100q: %w", text, err)
			}
		}
		if first > last {
			return CPUSet{}, fmt.Errorf("CPU list %.100q: range %s ends before its start", text, part)
		}
		if listed += last - first + 1; listed > maxListed {
			return CPUSet{}, fmt.Errorf("CPU list %.100q: CPUs are listed several times: the list has more than %d", text, maxListed)
		}
		for id := first; id <= last; id++ {
			s.Add(id)
		}
	}
	return s, nil
}

func parseID(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no ID", text)
	}
	if id >= MaxCPUs {
		return 0, fmt.Errorf("ID %d is not below %d", id, MaxCPUs)
	}
	return int(id), nil
}

// Has reports whether the CPU is in the set. An ID that is negative or not below [MaxCPUs] is in no set.
func (s CPUSet) Has(id int) bool { return id >= 0 && id < MaxCPUs && s.words[id/64]&(1<<(id%64)) != 0 }

// Len returns the number of CPUs.
func (s CPUSet) Len() (count int) {
	for _, w := range s.words {
		count += bits.OnesCount64(w)
	}
	return count
}

// IsEmpty reports whether the set has no CPUs.
func (s CPUSet) IsEmpty() bool { return s == CPUSet{} }

// Union returns the CPUs of both sets.
func (s CPUSet) Union(other CPUSet) (union CPUSet) {
	for i := range s.words {
		union.words[i] = s.words[i] | other.words[i]
	}
	return union
}

// Intersect returns the CPUs that are in both sets.
func (s CPUSet) Intersect(other CPUSet) (common CPUSet) {
	for i := range s.words {
		common.words[i] = s.words[i] & other.words[i]
	}
	return common
}

// Minus returns the CPUs of s that are not in other.
func (s CPUSet) Minus(other CPUSet) (rest CPUSet) {
	for i := range s.words {
		rest.words[i] = s.words[i] &^ other.words[i]
	}
	return rest
}

// CountCommon returns the number of CPUs that are in both sets.
func (s CPUSet) CountCommon(other CPUSet) (count int) {
	for i, w := range s.words {
		count += bits.OnesCount64(w & other.words[i])
	}
	return count
}

// All returns the IDs in ascending order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Lowest returns the lowest ID, or -1 for the empty set.
func (s CPUSet) Lowest() int {
	for i, w := range s.words {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// Highest returns the highest ID, or -1 for the empty set.
func (s CPUSet) Highest() int {
	for i := len(s.words) - 1; i >= 0; i-- {
		if w := s.words[i]; w != 0 {
			return i*64 + 63 - bits.LeadingZeros64(w)
		}
	}
	return -1
}

// String returns the kernel's list format, such as "0-3,8", as in cpuset.cpus.
func (s CPUSet) String() string {
	var text []byte
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(first), 10)
		if last > first {
			text = append(text, '-')
			text = strconv.AppendInt(text, int64(last), 10)
		}
	}
	for id := range s.All() {
		if first >= 0 && id == last+1 {
			last = id
			continue
		}
		flush()
		first, last = id, id
	}
	flush()
	return string(text)
}

// MarshalText returns the text of String, for JSON and logs.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText replaces the set with the result of [ParseCPUSet]. After an error the set is unchanged.
func (s *CPUSet) UnmarshalText(text []byte) error {
	set, err := ParseCPUSet(string(text))
	if err == nil {
		*s = set
	}
	return err
}
