// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeVersion converts the versions of a runtime to a CRI message.
func EncodeVersion(version cri.Version) *v1.VersionResponse {
	return &v1.VersionResponse{
		Version:           version.Version,
		RuntimeName:       version.RuntimeName,
		RuntimeVersion:    version.RuntimeVersion,
		RuntimeApiVersion: version.RuntimeAPIVersion,
	}
}

// DecodeVersion converts the CRI message msg to the versions of a runtime.
func DecodeVersion(msg *v1.VersionResponse) cri.Version {
	return cri.Version{
		Version:           msg.GetVersion(),
		RuntimeName:       msg.GetRuntimeName(),
		RuntimeVersion:    msg.GetRuntimeVersion(),
		RuntimeAPIVersion: msg.GetRuntimeApiVersion(),
	}
}

// EncodeStatus converts the status of a runtime to a CRI message.
func EncodeStatus(status cri.Status) *v1.StatusResponse {
	return &v1.StatusResponse{
		Status: &v1.RuntimeStatus{
			Conditions: mapSlice(status.Conditions, func(c cri.Condition) *v1.RuntimeCondition {
				return &v1.RuntimeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
			}),
		},
		RuntimeHandlers: mapSlice(status.Handlers, func(h cri.RuntimeHandler) *v1.RuntimeHandler {
			return &v1.RuntimeHandler{Name: h.Name, Features: &v1.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: h.RecursiveReadOnlyMounts,
				UserNamespaces:          h.UserNamespaces,
			}}
		}),
		Features: &v1.RuntimeFeatures{
			SupplementalGroupsPolicy:  status.Features.SupplementalGroupsPolicy,
			UserNamespacesHostNetwork: status.Features.UserNamespacesHostNetwork,
			MountOptions:              status.Features.MountOptions,
		},
	}
}

// DecodeStatus converts the CRI message msg to the status of a runtime.
func DecodeStatus(msg *v1.StatusResponse) cri.Status {
	f := msg.GetFeatures()
	return cri.Status{
		Conditions: mapSlice(msg.GetStatus().GetConditions(), func(c *v1.RuntimeCondition) cri.Condition {
			return cri.Condition{
				Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
			}
		}),
		Handlers: mapSlice(msg.GetRuntimeHandlers(), func(h *v1.RuntimeHandler) cri.RuntimeHandler {
			return cri.RuntimeHandler{
				Name:                    h.GetName(),
				RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
				UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
			}
		}),
		Features: cri.RuntimeFeatures{
			SupplementalGroupsPolicy:  f.GetSupplementalGroupsPolicy(),
			UserNamespacesHostNetwork: f.GetUserNamespacesHostNetwork(),
			MountOptions:              f.GetMountOptions(),
		},
	}
}

// EncodeCgroupDriver converts the cgroup driver of a runtime to a CRI message.
func EncodeCgroupDriver(driver cri.CgroupDriver) *v1.RuntimeConfigResponse {
	return &v1.RuntimeConfigResponse{Linux: &v1.LinuxRuntimeConfiguration{CgroupDriver: v1.CgroupDriver(driver)}}
}

// DecodeCgroupDriver converts the CRI message msg to the cgroup driver of a runtime.
func DecodeCgroupDriver(msg *v1.RuntimeConfigResponse) cri.CgroupDriver {
	return decodeEnum[cri.CgroupDriver](msg.GetLinux().GetCgroupDriver())
}
