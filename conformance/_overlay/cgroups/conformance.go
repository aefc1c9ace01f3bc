// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gets this file by the overlay of package conformance. It simulates a host with either cgroup version.
package cgroups

// ConformanceHost sets the cgroup version (unified is v2) and the sizes of huge pages, which the package otherwise detects once
// on the host.
func ConformanceHost(unified bool, sizes []string) {
	isUnifiedOnce.Do(func() {})
	initHPSOnce.Do(func() {})
	isUnified, hugePageSizes = unified, sizes
}
