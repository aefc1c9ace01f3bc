// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gets this file by the overlay of package conformance. It simulates a host with either cgroup version.
package cgroups

// ConformanceHost sets two properties that the package normally detects once on the host: whether cgroups are of version 2
// (unified), and sizes, the sizes of huge pages.
func ConformanceHost(unified bool, sizes []string) {
	isUnifiedOnce.Do(func() {})
	initHPSOnce.Do(func() {})
	isUnified, hugePageSizes = unified, sizes
}
