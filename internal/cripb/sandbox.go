// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeSandboxConfig encodes the config of a sandbox, except RuntimeHandler, which a request contains separately. nil stays nil.
func EncodeSandboxConfig(c *cri.SandboxConfig) *v1.PodSandboxConfig {
	if c == nil {
		return nil
	}
	return &v1.PodSandboxConfig{
		Metadata:     encodeSandboxMetadata(c.Pod, c.Attempt),
		Hostname:     c.Hostname,
		LogDirectory: c.LogDirectory,
		DnsConfig:    encodeDNS(c.DNS),
		PortMappings: mapSlicePtr(c.Ports, encodePort),
		Labels:       c.Labels,
		Annotations:  c.Annotations,
		Linux: &v1.LinuxPodSandboxConfig{
			CgroupParent:    c.CgroupParent,
			SecurityContext: encodeSandboxSecurity(&c.Security),
			Sysctls:         c.Sysctls,
			Overhead:        EncodeResources(c.Overhead),
			Resources:       EncodeResources(c.Resources),
		},
	}
}

// DecodeSandboxConfig decodes the config of a sandbox and sets its runtime handler. nil stays nil.
func DecodeSandboxConfig(p *v1.PodSandboxConfig, runtimeHandler string) *cri.SandboxConfig {
	if p == nil {
		return nil
	}
	linux := p.GetLinux()
	return &cri.SandboxConfig{
		Pod:            decodeIdentity(p.GetMetadata()),
		Attempt:        p.GetMetadata().GetAttempt(),
		RuntimeHandler: runtimeHandler,
		Hostname:       p.GetHostname(),
		LogDirectory:   p.GetLogDirectory(),
		DNS:            decodeDNS(p.GetDnsConfig()),
		Ports:          mapSlice(p.GetPortMappings(), decodePort),
		Labels:         p.GetLabels(),
		Annotations:    p.GetAnnotations(),
		CgroupParent:   linux.GetCgroupParent(),
		Sysctls:        linux.GetSysctls(),
		Security:       decodeSandboxSecurity(linux.GetSecurityContext()),
		Overhead:       DecodeResources(linux.GetOverhead()),
		Resources:      DecodeResources(linux.GetResources()),
	}
}

// EncodeSandbox encodes a sandbox as in lists, without details.
func EncodeSandbox(s *cri.Sandbox) *v1.PodSandbox {
	return &v1.PodSandbox{
		Id:             s.ID,
		Metadata:       encodeSandboxMetadata(s.Pod, s.Attempt),
		State:          v1.PodSandboxState(s.State),
		CreatedAt:      encodeTime(s.CreatedAt),
		Labels:         s.Labels,
		Annotations:    s.Annotations,
		RuntimeHandler: s.RuntimeHandler,
	}
}

// DecodeSandbox decodes a sandbox as in lists, without details.
func DecodeSandbox(p *v1.PodSandbox) cri.Sandbox {
	return cri.Sandbox{
		ID:             p.GetId(),
		Pod:            decodeIdentity(p.GetMetadata()),
		Attempt:        p.GetMetadata().GetAttempt(),
		State:          decodeSandboxState(p.GetState()),
		CreatedAt:      decodeTime(p.GetCreatedAt()),
		Labels:         p.GetLabels(),
		Annotations:    p.GetAnnotations(),
		RuntimeHandler: p.GetRuntimeHandler(),
	}
}

// EncodeSandboxStatus encodes a sandbox with details.
func EncodeSandboxStatus(s *cri.Sandbox) *v1.PodSandboxStatus {
	network := &v1.PodSandboxNetworkStatus{}
	for i, ip := range s.IPs {
		if i == 0 {
			network.Ip = ip
		} else {
			network.AdditionalIps = append(network.AdditionalIps, &v1.PodIP{Ip: ip})
		}
	}
	return &v1.PodSandboxStatus{
		Id:        s.ID,
		Metadata:  encodeSandboxMetadata(s.Pod, s.Attempt),
		State:     v1.PodSandboxState(s.State),
		CreatedAt: encodeTime(s.CreatedAt),
		Network:   network,
		Linux: &v1.LinuxPodSandboxStatus{
			Namespaces: &v1.Namespace{Options: encodeNamespaces(&s.Namespaces)},
		},
		Labels:         s.Labels,
		Annotations:    s.Annotations,
		RuntimeHandler: s.RuntimeHandler,
	}
}

// DecodeSandboxStatus decodes a sandbox with details.
func DecodeSandboxStatus(p *v1.PodSandboxStatus) cri.Sandbox {
	s := cri.Sandbox{
		ID:             p.GetId(),
		Pod:            decodeIdentity(p.GetMetadata()),
		Attempt:        p.GetMetadata().GetAttempt(),
		State:          decodeSandboxState(p.GetState()),
		CreatedAt:      decodeTime(p.GetCreatedAt()),
		Labels:         p.GetLabels(),
		Annotations:    p.GetAnnotations(),
		RuntimeHandler: p.GetRuntimeHandler(),
		Namespaces:     decodeNamespaces(p.GetLinux().GetNamespaces().GetOptions()),
	}
	if ip := p.GetNetwork().GetIp(); ip != "" {
		s.IPs = append(s.IPs, ip)
	}
	for _, ip := range p.GetNetwork().GetAdditionalIps() {
		s.IPs = append(s.IPs, ip.GetIp())
	}
	return s
}

func encodeSandboxMetadata(p cri.PodIdentity, attempt uint32) *v1.PodSandboxMetadata {
	return &v1.PodSandboxMetadata{Name: p.Name, Uid: p.UID, Namespace: p.Namespace, Attempt: attempt}
}

func decodeIdentity(m *v1.PodSandboxMetadata) cri.PodIdentity {
	return cri.PodIdentity{UID: m.GetUid(), Name: m.GetName(), Namespace: m.GetNamespace()}
}

// decodeSandboxState decodes a sandbox state. Unknown states become SandboxNotReady.
func decodeSandboxState(s v1.PodSandboxState) cri.SandboxState {
	if s == v1.PodSandboxState_SANDBOX_READY {
		return cri.SandboxReady
	}
	return cri.SandboxNotReady
}

func encodeDNS(d *cri.DNSConfig) *v1.DNSConfig {
	if d == nil {
		return nil
	}
	return &v1.DNSConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
}

func decodeDNS(p *v1.DNSConfig) *cri.DNSConfig {
	if p == nil {
		return nil
	}
	return &cri.DNSConfig{Servers: p.GetServers(), Searches: p.GetSearches(), Options: p.GetOptions()}
}

func encodePort(m *cri.PortMapping) *v1.PortMapping {
	return &v1.PortMapping{
		Protocol:      v1.Protocol(m.Protocol),
		ContainerPort: m.ContainerPort,
		HostPort:      m.HostPort,
		HostIp:        m.HostIP,
	}
}

func decodePort(p *v1.PortMapping) cri.PortMapping {
	return cri.PortMapping{
		Protocol:      decodeEnum[cri.Protocol](p.GetProtocol()),
		ContainerPort: p.GetContainerPort(),
		HostPort:      p.GetHostPort(),
		HostIP:        p.GetHostIp(),
	}
}
