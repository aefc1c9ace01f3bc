// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"strconv"
	"strings"
)

// hugepageUnits are the units of HugepageSize, each 1024 times the one before.
const hugepageUnits = "BKMGTP"

// HugepageSize returns the size of a huge page as the kernel writes it into the names of hugetlb files: 2097152 is
// "2MB". A size that is zero, or that stays above 1024 of the largest unit that divides it, has no such name and gives
// "" (HugePageUnitSizeFromByteSize in pkg/apis/core/v1/helper/helpers.go).
func HugepageSize(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	unit := 0
	for bytes%1024 == 0 && unit < len(hugepageUnits)-1 {
		bytes /= 1024
		unit++
	}
	if bytes > 1024 && unit < len(hugepageUnits)-1 {
		return ""
	}
	name := strconv.FormatUint(bytes, 10) + hugepageUnits[unit:unit+1]
	return strings.TrimSuffix(name, "B") + "B"
}

// ParseHugepageSize returns the bytes of a huge page whose size is written as in [HugepageSize].
func ParseHugepageSize(name string) (uint64, error) {
	digits := strings.TrimRight(name, hugepageUnits)
	bytes, err := strconv.ParseUint(digits, 10, 64)
	if err == nil && digits != name {
		unit := strings.IndexByte(hugepageUnits, name[len(digits)])
		if shifted := bytes << (10 * unit); shifted>>(10*unit) == bytes && HugepageSize(shifted) == name {
			return shifted, nil
		}
	}
	return 0, fmt.Errorf("%q is no size of a huge page, such as 2MB", name)
}
