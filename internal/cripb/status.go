// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeVersion encodes the versions of a runtime.
func EncodeVersion(v cri.Version) *v1.VersionResponse {
	return &v1.VersionResponse{
		Version:           v.Version,
		RuntimeName:       v.RuntimeName,
		RuntimeVersion:    v.RuntimeVersion,
		RuntimeApiVersion: v.RuntimeAPIVersion,
	}
}

// DecodeVersion decodes the versions of a runtime.
func DecodeVersion(p *v1.VersionResponse) cri.Version {
	return cri.Version{
		Version:           p.GetVersion(),
		RuntimeName:       p.GetRuntimeName(),
		RuntimeVersion:    p.GetRuntimeVersion(),
		RuntimeAPIVersion: p.GetRuntimeApiVersion(),
	}
}

// EncodeStatus encodes the status of a runtime.
func EncodeStatus(s cri.Status) *v1.StatusResponse {
	return &v1.StatusResponse{
		Status: &v1.RuntimeStatus{
			Conditions: mapSlice(s.Conditions, func(c cri.Condition) *v1.RuntimeCondition {
				return &v1.RuntimeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
			}),
		},
		RuntimeHandlers: mapSlice(s.Handlers, func(h cri.RuntimeHandler) *v1.RuntimeHandler {
			return &v1.RuntimeHandler{Name: h.Name, Features: &v1.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: h.RecursiveReadOnlyMounts,
				UserNamespaces:          h.UserNamespaces,
			}}
		}),
		Features: &v1.RuntimeFeatures{
			SupplementalGroupsPolicy:  s.Features.SupplementalGroupsPolicy,
			UserNamespacesHostNetwork: s.Features.UserNamespacesHostNetwork,
			MountOptions:              s.Features.MountOptions,
		},
	}
}

// DecodeStatus decodes the status of a runtime.
func DecodeStatus(p *v1.StatusResponse) cri.Status {
	f := p.GetFeatures()
	return cri.Status{
		Conditions: mapSlice(p.GetStatus().GetConditions(), func(c *v1.RuntimeCondition) cri.Condition {
			return cri.Condition{
				Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
			}
		}),
		Handlers: mapSlice(p.GetRuntimeHandlers(), func(h *v1.RuntimeHandler) cri.RuntimeHandler {
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

// EncodeCgroupDriver encodes the cgroup driver of a runtime.
func EncodeCgroupDriver(d cri.CgroupDriver) *v1.RuntimeConfigResponse {
	return &v1.RuntimeConfigResponse{Linux: &v1.LinuxRuntimeConfiguration{CgroupDriver: v1.CgroupDriver(d)}}
}

// DecodeCgroupDriver decodes the cgroup driver of a runtime.
func DecodeCgroupDriver(p *v1.RuntimeConfigResponse) cri.CgroupDriver {
	return decodeEnum[cri.CgroupDriver](p.GetLinux().GetCgroupDriver())
}
