// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"strings"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

func encodeSandboxSecurity(s *cri.SandboxSecurity) *v1.LinuxSandboxSecurityContext {
	return &v1.LinuxSandboxSecurityContext{
		NamespaceOptions:         encodeNamespaces(&s.Namespaces),
		SelinuxOptions:           encodeSELinux(s.SELinux),
		RunAsUser:                encodeInt64(s.RunAsUser),
		RunAsGroup:               encodeInt64(s.RunAsGroup),
		ReadonlyRootfs:           s.ReadonlyRootfs,
		SupplementalGroups:       s.SupplementalGroups,
		SupplementalGroupsPolicy: v1.SupplementalGroupsPolicy(s.SupplementalGroupsPolicy),
		Privileged:               s.Privileged,
		Seccomp:                  encodeProfile(s.Seccomp),
		Apparmor:                 encodeProfile(s.AppArmor),
	}
}

func decodeSandboxSecurity(msg *v1.LinuxSandboxSecurityContext) cri.SandboxSecurity {
	return cri.SandboxSecurity{
		Namespaces:               decodeNamespaces(msg.GetNamespaceOptions()),
		SELinux:                  decodeSELinux(msg.GetSelinuxOptions()),
		RunAsUser:                decodeInt64(msg.GetRunAsUser()),
		RunAsGroup:               decodeInt64(msg.GetRunAsGroup()),
		ReadonlyRootfs:           msg.GetReadonlyRootfs(),
		SupplementalGroups:       msg.GetSupplementalGroups(),
		SupplementalGroupsPolicy: decodeEnum[cri.GroupsPolicy](msg.GetSupplementalGroupsPolicy()),
		Privileged:               msg.GetPrivileged(),
		Seccomp:                  decodeProfile(msg.GetSeccomp()),
		AppArmor:                 decodeProfile(msg.GetApparmor()),
	}
}

func encodeContainerSecurity(s *cri.ContainerSecurity) *v1.LinuxContainerSecurityContext {
	p := &v1.LinuxContainerSecurityContext{
		Privileged:               s.Privileged,
		NamespaceOptions:         encodeNamespaces(&s.Namespaces),
		SelinuxOptions:           encodeSELinux(s.SELinux),
		RunAsUser:                encodeInt64(s.RunAsUser),
		RunAsGroup:               encodeInt64(s.RunAsGroup),
		RunAsUsername:            s.RunAsUsername,
		ReadonlyRootfs:           s.ReadonlyRootfs,
		SupplementalGroups:       s.SupplementalGroups,
		SupplementalGroupsPolicy: v1.SupplementalGroupsPolicy(s.SupplementalGroupsPolicy),
		NoNewPrivs:               s.NoNewPrivs,
		MaskedPaths:              s.MaskedPaths,
		ReadonlyPaths:            s.ReadonlyPaths,
		Seccomp:                  encodeProfile(s.Seccomp),
		Apparmor:                 encodeProfile(s.AppArmor),
		ApparmorProfile:          encodeAppArmorName(s.AppArmor), //nolint:staticcheck // for older runtimes
	}
	if c := s.Capabilities; c != nil {
		p.Capabilities = &v1.Capability{
			AddCapabilities: c.Add, DropCapabilities: c.Drop, AddAmbientCapabilities: c.AddAmbient,
		}
	}
	return p
}

func decodeContainerSecurity(msg *v1.LinuxContainerSecurityContext) cri.ContainerSecurity {
	s := cri.ContainerSecurity{
		Privileged:               msg.GetPrivileged(),
		Namespaces:               decodeNamespaces(msg.GetNamespaceOptions()),
		SELinux:                  decodeSELinux(msg.GetSelinuxOptions()),
		RunAsUser:                decodeInt64(msg.GetRunAsUser()),
		RunAsGroup:               decodeInt64(msg.GetRunAsGroup()),
		RunAsUsername:            msg.GetRunAsUsername(),
		ReadonlyRootfs:           msg.GetReadonlyRootfs(),
		SupplementalGroups:       msg.GetSupplementalGroups(),
		SupplementalGroupsPolicy: decodeEnum[cri.GroupsPolicy](msg.GetSupplementalGroupsPolicy()),
		NoNewPrivs:               msg.GetNoNewPrivs(),
		MaskedPaths:              msg.GetMaskedPaths(),
		ReadonlyPaths:            msg.GetReadonlyPaths(),
		Seccomp:                  decodeProfile(msg.GetSeccomp()),
		AppArmor:                 decodeProfile(msg.GetApparmor()),
	}
	if s.AppArmor == nil {
		s.AppArmor = decodeAppArmorName(msg.GetApparmorProfile()) //nolint:staticcheck // older clients send only this
	}
	if c := msg.GetCapabilities(); c != nil {
		s.Capabilities = &cri.Capabilities{
			Add:        c.GetAddCapabilities(),
			Drop:       c.GetDropCapabilities(),
			AddAmbient: c.GetAddAmbientCapabilities(),
		}
	}
	return s
}

// encodeNamespaces converts namespace options to a CRI message. As in the kubelet, the default user namespace is that of the
// host.
func encodeNamespaces(options *cri.NamespaceOptions) *v1.NamespaceOption {
	user := &v1.UserNamespace{Mode: v1.NamespaceMode_NODE}
	if u := options.User; u != nil {
		user = &v1.UserNamespace{
			Mode: v1.NamespaceMode(u.Mode),
			Uids: mapSlicePtr(u.UIDs, encodeIDMapping),
			Gids: mapSlicePtr(u.GIDs, encodeIDMapping),
		}
	}
	return &v1.NamespaceOption{
		Network:       v1.NamespaceMode(options.Network),
		Pid:           v1.NamespaceMode(options.PID),
		Ipc:           v1.NamespaceMode(options.IPC),
		TargetId:      options.TargetID,
		UsernsOptions: user,
	}
}

// decodeNamespaces converts a CRI message to namespace options. As in containerd and CRI-O, the default user namespace is
// that of the host.
func decodeNamespaces(msg *v1.NamespaceOption) cri.NamespaceOptions {
	n := cri.NamespaceOptions{
		Network:  decodeEnum[cri.NamespaceMode](msg.GetNetwork()),
		PID:      decodeEnum[cri.NamespaceMode](msg.GetPid()),
		IPC:      decodeEnum[cri.NamespaceMode](msg.GetIpc()),
		TargetID: msg.GetTargetId(),
	}
	u := msg.GetUsernsOptions()
	if u != nil && (u.GetMode() != v1.NamespaceMode_NODE || len(u.GetUids())+len(u.GetGids()) > 0) {
		n.User = &cri.UserNamespace{
			Mode: decodeEnum[cri.NamespaceMode](u.GetMode()),
			UIDs: mapSlice(u.GetUids(), decodeIDMapping),
			GIDs: mapSlice(u.GetGids(), decodeIDMapping),
		}
	}
	return n
}

func encodeSELinux(s *cri.SELinux) *v1.SELinuxOption {
	if s == nil {
		return nil
	}
	return &v1.SELinuxOption{User: s.User, Role: s.Role, Type: s.Type, Level: s.Level}
}

func decodeSELinux(msg *v1.SELinuxOption) *cri.SELinux {
	if msg == nil {
		return nil
	}
	return &cri.SELinux{User: msg.GetUser(), Role: msg.GetRole(), Type: msg.GetType(), Level: msg.GetLevel()}
}

func encodeProfile(s *cri.SecurityProfile) *v1.SecurityProfile {
	if s == nil {
		return nil
	}
	return &v1.SecurityProfile{ProfileType: v1.SecurityProfile_ProfileType(s.Type), LocalhostRef: s.LocalhostRef}
}

func decodeProfile(msg *v1.SecurityProfile) *cri.SecurityProfile {
	if msg == nil {
		return nil
	}
	return &cri.SecurityProfile{Type: decodeEnum[cri.ProfileType](msg.GetProfileType()), LocalhostRef: msg.GetLocalhostRef()}
}

// The deprecated string form of an AppArmor profile. The kubelet still sends it in addition, for older runtimes
// (kubelet/kuberuntime/helpers.go).
const (
	appArmorRuntimeDefault = "runtime/default"
	appArmorUnconfined     = "unconfined"
	appArmorLocalhost      = "localhost/" // and the name
)

func encodeAppArmorName(s *cri.SecurityProfile) string {
	switch {
	case s == nil:
		return ""
	case s.Type == cri.ProfileRuntimeDefault:
		return appArmorRuntimeDefault
	case s.Type == cri.ProfileUnconfined:
		return appArmorUnconfined
	case s.Type == cri.ProfileLocalhost:
		return appArmorLocalhost + s.LocalhostRef
	default:
		return ""
	}
}

func decodeAppArmorName(name string) *cri.SecurityProfile {
	switch name {
	case "":
		return nil
	case appArmorRuntimeDefault:
		return &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}
	case appArmorUnconfined:
		return &cri.SecurityProfile{Type: cri.ProfileUnconfined}
	default:
		return &cri.SecurityProfile{
			Type:         cri.ProfileLocalhost,
			LocalhostRef: strings.TrimPrefix(name, appArmorLocalhost),
		}
	}
}
