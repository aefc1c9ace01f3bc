// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"strconv"
	"strings"
)

// hugepageUnits are the unit prefixes of HugepageSize, each 1024 times the previous one.
const hugepageUnits = "BKMGTP"

// HugepageSize returns the name of a page size in the kernel's hugetlb files, such as "2MB", or "" if the kernel has no
// name for it. Source: HugePageUnitSizeFromByteSize in pkg/apis/core/v1/helper/helpers.go.
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

// ParseHugepageSize returns the page size in bytes for a name such as "2MB", which [HugepageSize] returns.
func ParseHugepageSize(name string) (uint64, error) {
	digits := strings.TrimRight(name, hugepageUnits)
	bytes, err := strconv.ParseUint(digits, 10, 64)
	if err == nil && digits != name {
		unit := strings.IndexByte(hugepageUnits, name[len(digits)])
		if shifted := bytes << (10 * unit); shifted>>(10*unit) == bytes && HugepageSize(shifted) == name {
			return shifted, nil
		}
	}
	return 0, fmt.Errorf("%q is not a hugepage size, such as 2MB", name)
}
