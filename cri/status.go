// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// Version is who a runtime is.
type Version struct {
	Version           string // of the kubelet runtime API, "0.1.0"
	RuntimeName       string
	RuntimeVersion    string
	RuntimeAPIVersion string // "v1"
}

// The conditions that every runtime reports in a [Status].
const (
	ConditionRuntimeReady = "RuntimeReady"
	ConditionNetworkReady = "NetworkReady"
)

// Status is how a runtime is and what it can do.
type Status struct {
	Conditions []Condition
	Handlers   []RuntimeHandler
	Features   RuntimeFeatures
}

// Condition returns the condition of a type, or false when the runtime does not report it.
func (s Status) Condition(typ string) (Condition, bool) {
	for _, c := range s.Conditions {
		if c.Type == typ {
			return c, true
		}
	}
	return Condition{}, false
}

// Condition is one aspect of a runtime's health.
type Condition struct {
	Type    string
	Status  bool
	Reason  string
	Message string
}

// RuntimeHandler is a way to run sandboxes that a pod can choose (a RuntimeClass).
type RuntimeHandler struct {
	Name                    string // empty: the default
	RecursiveReadOnlyMounts bool
	UserNamespaces          bool
}

// RuntimeFeatures is what the runtime can do whatever the handler.
type RuntimeFeatures struct {
	SupplementalGroupsPolicy  bool
	UserNamespacesHostNetwork bool
	MountOptions              bool
}

// CgroupDriver is how cgroups are named and made.
type CgroupDriver uint8

// The cgroup drivers.
const (
	CgroupDriverSystemd CgroupDriver = iota
	CgroupDriverCgroupfs
)

// String returns "systemd" or "cgroupfs".
func (d CgroupDriver) String() string { return name(d, "systemd", "cgroupfs") }
