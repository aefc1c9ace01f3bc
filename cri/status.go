// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// Version contains the name and the versions of a runtime.
type Version struct {
	Version           string // of the kubelet runtime API, always "0.1.0"
	RuntimeName       string
	RuntimeVersion    string
	RuntimeAPIVersion string // "v1"
}

// The condition types that every runtime reports in a [Status].
const (
	ConditionRuntimeReady = "RuntimeReady"
	ConditionNetworkReady = "NetworkReady"
)

// Status contains the conditions, the handlers and the features of a runtime.
type Status struct {
	Conditions []Condition
	Handlers   []RuntimeHandler
	Features   RuntimeFeatures
}

// Condition returns the condition with this type, and false if the runtime does not report it.
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

// RuntimeHandler is a configuration of the runtime that a pod selects through its RuntimeClass.
type RuntimeHandler struct {
	Name                    string // empty: the default handler
	RecursiveReadOnlyMounts bool
	UserNamespaces          bool
}

// RuntimeFeatures are the runtime's features that do not depend on the handler.
type RuntimeFeatures struct {
	SupplementalGroupsPolicy  bool
	UserNamespacesHostNetwork bool
	MountOptions              bool
}

// CgroupDriver determines how cgroups are named and created: as systemd slices and scopes, or as directories.
type CgroupDriver uint8

// The cgroup drivers.
const (
	CgroupDriverSystemd CgroupDriver = iota
	CgroupDriverCgroupfs
)

// String returns "systemd" or "cgroupfs".
func (d CgroupDriver) String() string { return name(d, "systemd", "cgroupfs") }
