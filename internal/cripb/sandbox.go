// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeSandboxConfig converts the config of a sandbox to a CRI message. It omits RuntimeHandler, which is a separate field
// of the request. A nil config becomes nil.
func EncodeSandboxConfig(config *cri.SandboxConfig) *v1.PodSandboxConfig {
	if config == nil {
		return nil
	}
	return &v1.PodSandboxConfig{
		Metadata:     encodeSandboxMetadata(config.Pod, config.Attempt),
		Hostname:     config.Hostname,
		LogDirectory: config.LogDirectory,
		DnsConfig:    encodeDNS(config.DNS),
		PortMappings: mapSlicePtr(config.Ports, encodePort),
		Labels:       config.Labels,
		Annotations:  config.Annotations,
		Linux: &v1.LinuxPodSandboxConfig{
			CgroupParent:    config.CgroupParent,
			SecurityContext: encodeSandboxSecurity(&config.Security),
			Sysctls:         config.Sysctls,
			Overhead:        EncodeResources(config.Overhead),
			Resources:       EncodeResources(config.Resources),
		},
	}
}

// DecodeSandboxConfig converts the CRI message msg to the config of a sandbox. runtimeHandler is a separate field of the
// request. A nil message becomes nil.
func DecodeSandboxConfig(msg *v1.PodSandboxConfig, runtimeHandler string) *cri.SandboxConfig {
	if msg == nil {
		return nil
	}
	linux := msg.GetLinux()
	return &cri.SandboxConfig{
		Pod:            decodeIdentity(msg.GetMetadata()),
		Attempt:        msg.GetMetadata().GetAttempt(),
		RuntimeHandler: runtimeHandler,
		Hostname:       msg.GetHostname(),
		LogDirectory:   msg.GetLogDirectory(),
		DNS:            decodeDNS(msg.GetDnsConfig()),
		Ports:          mapSlice(msg.GetPortMappings(), decodePort),
		Labels:         msg.GetLabels(),
		Annotations:    msg.GetAnnotations(),
		CgroupParent:   linux.GetCgroupParent(),
		Sysctls:        linux.GetSysctls(),
		Security:       decodeSandboxSecurity(linux.GetSecurityContext()),
		Overhead:       DecodeResources(linux.GetOverhead()),
		Resources:      DecodeResources(linux.GetResources()),
	}
}

// EncodeSandbox converts a sandbox to an entry of a sandbox list. Such an entry has no details of the sandbox.
func EncodeSandbox(sandbox *cri.Sandbox) *v1.PodSandbox {
	return &v1.PodSandbox{
		Id:             sandbox.ID,
		Metadata:       encodeSandboxMetadata(sandbox.Pod, sandbox.Attempt),
		State:          v1.PodSandboxState(sandbox.State),
		CreatedAt:      encodeTime(sandbox.CreatedAt),
		Labels:         sandbox.Labels,
		Annotations:    sandbox.Annotations,
		RuntimeHandler: sandbox.RuntimeHandler,
	}
}

// DecodeSandbox converts an entry of a sandbox list to a sandbox without details.
func DecodeSandbox(msg *v1.PodSandbox) cri.Sandbox {
	return cri.Sandbox{
		ID:             msg.GetId(),
		Pod:            decodeIdentity(msg.GetMetadata()),
		Attempt:        msg.GetMetadata().GetAttempt(),
		State:          decodeSandboxState(msg.GetState()),
		CreatedAt:      decodeTime(msg.GetCreatedAt()),
		Labels:         msg.GetLabels(),
		Annotations:    msg.GetAnnotations(),
		RuntimeHandler: msg.GetRuntimeHandler(),
	}
}

// EncodeSandboxStatus converts a sandbox with its details to a CRI message.
func EncodeSandboxStatus(sandbox *cri.Sandbox) *v1.PodSandboxStatus {
	network := &v1.PodSandboxNetworkStatus{}
	for i, ip := range sandbox.IPs {
		if i == 0 {
			network.Ip = ip
		} else {
			network.AdditionalIps = append(network.AdditionalIps, &v1.PodIP{Ip: ip})
		}
	}
	return &v1.PodSandboxStatus{
		Id:        sandbox.ID,
		Metadata:  encodeSandboxMetadata(sandbox.Pod, sandbox.Attempt),
		State:     v1.PodSandboxState(sandbox.State),
		CreatedAt: encodeTime(sandbox.CreatedAt),
		Network:   network,
		Linux: &v1.LinuxPodSandboxStatus{
			Namespaces: &v1.Namespace{Options: encodeNamespaces(&sandbox.Namespaces)},
		},
		Labels:         sandbox.Labels,
		Annotations:    sandbox.Annotations,
		RuntimeHandler: sandbox.RuntimeHandler,
	}
}

// DecodeSandboxStatus converts the CRI message msg to a sandbox with its details.
func DecodeSandboxStatus(msg *v1.PodSandboxStatus) cri.Sandbox {
	s := cri.Sandbox{
		ID:             msg.GetId(),
		Pod:            decodeIdentity(msg.GetMetadata()),
		Attempt:        msg.GetMetadata().GetAttempt(),
		State:          decodeSandboxState(msg.GetState()),
		CreatedAt:      decodeTime(msg.GetCreatedAt()),
		Labels:         msg.GetLabels(),
		Annotations:    msg.GetAnnotations(),
		RuntimeHandler: msg.GetRuntimeHandler(),
		Namespaces:     decodeNamespaces(msg.GetLinux().GetNamespaces().GetOptions()),
	}
	if ip := msg.GetNetwork().GetIp(); ip != "" {
		s.IPs = append(s.IPs, ip)
	}
	for _, ip := range msg.GetNetwork().GetAdditionalIps() {
		s.IPs = append(s.IPs, ip.GetIp())
	}
	return s
}

func encodeSandboxMetadata(p cri.PodIdentity, attempt uint32) *v1.PodSandboxMetadata {
	return &v1.PodSandboxMetadata{Name: p.Name, Uid: p.UID, Namespace: p.Namespace, Attempt: attempt}
}

func decodeIdentity(msg *v1.PodSandboxMetadata) cri.PodIdentity {
	return cri.PodIdentity{UID: msg.GetUid(), Name: msg.GetName(), Namespace: msg.GetNamespace()}
}

// decodeSandboxState converts the state of a sandbox in a CRI message. An unknown state becomes SandboxNotReady.
func decodeSandboxState(state v1.PodSandboxState) cri.SandboxState {
	if state == v1.PodSandboxState_SANDBOX_READY {
		return cri.SandboxReady
	}
	return cri.SandboxNotReady
}

func encodeDNS(dns *cri.DNSConfig) *v1.DNSConfig {
	if dns == nil {
		return nil
	}
	return &v1.DNSConfig{Servers: dns.Servers, Searches: dns.Searches, Options: dns.Options}
}

func decodeDNS(msg *v1.DNSConfig) *cri.DNSConfig {
	if msg == nil {
		return nil
	}
	return &cri.DNSConfig{Servers: msg.GetServers(), Searches: msg.GetSearches(), Options: msg.GetOptions()}
}

func encodePort(m *cri.PortMapping) *v1.PortMapping {
	return &v1.PortMapping{
		Protocol:      v1.Protocol(m.Protocol),
		ContainerPort: m.ContainerPort,
		HostPort:      m.HostPort,
		HostIp:        m.HostIP,
	}
}

func decodePort(msg *v1.PortMapping) cri.PortMapping {
	return cri.PortMapping{
		Protocol:      decodeEnum[cri.Protocol](msg.GetProtocol()),
		ContainerPort: msg.GetContainerPort(),
		HostPort:      msg.GetHostPort(),
		HostIP:        msg.GetHostIp(),
	}
}
