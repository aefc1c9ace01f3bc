// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gets this file by the overlay of package conformance. It simulates a host with either cgroup version.
package cgroups

// ConformanceHost replaces two properties of the host that the package detects: whether the host has cgroup v2 (unified),
// and the sizes of its huge pages.
func ConformanceHost(unified bool, sizes []string) {
	isUnifiedOnce.Do(func() {})
	initHPSOnce.Do(func() {})
	isUnified, hugePageSizes = unified, sizes
}
