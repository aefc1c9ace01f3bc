// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gets this file by way of the overlay: it makes a host of either cgroup version out of any machine.
package cgroups

// ConformanceHost sets what the package finds out about the host once and for all: the cgroup version, and the sizes
// of huge pages.
func ConformanceHost(unified bool, sizes []string) {
	isUnifiedOnce.Do(func() {})
	initHPSOnce.Do(func() {})
	isUnified, hugePageSizes = unified, sizes
}
