// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

const maxHostname = 63 // of a DNS label; the kernel allows 64 bytes with the terminating zero

// Sandbox returns the CRI config of a sandbox of the pod. attempt is the number of earlier sandboxes of the pod. The pod
// must have passed podapi.Default, podapi.Validate and podapi.Unsupported.
func Sandbox(pod *corev1.Pod, attempt uint32, opts Options) (cri.SandboxConfig, error) {
	handler, err := runtimeHandler(pod, opts)
	if err != nil {
		return cri.SandboxConfig{}, err
	}
	host, err := kernelHostname(pod, opts)
	if err != nil {
		return cri.SandboxConfig{}, err
	}
	dns, err := podDNS(pod, opts)
	if err != nil {
		return cri.SandboxConfig{}, err
	}
	security, err := sandboxSecurity(pod, opts)
	if err != nil {
		return cri.SandboxConfig{}, err
	}
	resources, overhead := SandboxResources(pod, opts)
	c := cri.SandboxConfig{
		Pod:            podIdentity(pod),
		Attempt:        attempt,
		RuntimeHandler: handler,
		Hostname:       host,
		LogDirectory:   opts.logDirectory(pod),
		DNS:            dns,
		Ports:          portMappings(pod, opts),
		Labels:         sandboxLabels(pod),
		Annotations:    pod.Annotations,
		Sysctls:        convertSysctls(pod),
		Security:       security,
		Overhead:       overhead,
		Resources:      resources,
	}
	if err := checkMetadataSize(field.NewPath("metadata"), c.Labels, c.Annotations, podfield.MaxAnnotations+podfield.MaxSandboxLabels); err != nil {
		return cri.SandboxConfig{}, err
	}
	if opts.CgroupParent != nil {
		c.CgroupParent = opts.CgroupParent(pod)
	}
	return c, nil
}

// runtimeHandler returns the name of the runtime handler for the pod's runtime class. The default handler has the empty
// name.
func runtimeHandler(pod *corev1.Pod, opts Options) (string, error) {
	class := pod.Spec.RuntimeClassName
	if class == nil {
		return "", nil
	}
	if opts.RuntimeClasses != nil {
		if handler, ok := opts.RuntimeClasses(*class); ok {
			return handler, nil
		}
	}
	return "", field.NotFound(field.NewPath("spec", "runtimeClassName"), *class)
}

// kernelHostname returns the hostname to set in the pod's UTS namespace; empty on the host network. Source: GetNodenameForKernel
// in pkg/kubelet/util.
func kernelHostname(pod *corev1.Pod, opts Options) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	name, domain, err := hostAndDomain(pod, opts)
	if err != nil || domain == "" || !optional.IsTrue(pod.Spec.SetHostnameAsFQDN) {
		return name, err
	}
	fqdn := name + "." + domain
	if len(fqdn) > podfield.MaxFQDN {
		// The text is the kubelet's, because tools compare the message of the event.
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, podfield.MaxFQDN, len(fqdn))
	}
	return fqdn, nil
}

// hostAndDomain returns the hostname and the DNS domain of a pod. The domain is empty if the pod has no subdomain. Source:
// GeneratePodHostNameAndDomain in pkg/kubelet/kubelet_pods.go.
func hostAndDomain(pod *corev1.Pod, opts Options) (host, domain string, err error) {
	spec, path := &pod.Spec, field.NewPath("spec")
	if spec.HostnameOverride != nil {
		name := *spec.HostnameOverride
		return truncateHostname(pod, name, opts), "", checkValue(path.Child("hostnameOverride"), name, validation.IsDNS1123Subdomain)
	}
	if spec.Hostname != "" {
		if err := checkValue(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label); err != nil {
			return "", "", err
		}
	}
	host = truncateHostname(pod, cmp.Or(spec.Hostname, pod.Name), opts)
	if spec.Subdomain == "" {
		return host, "", nil
	}
	if err := checkValue(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label); err != nil {
		return "", "", err
	}
	return host, spec.Subdomain + "." + pod.Namespace + ".svc." + opts.ClusterDomain, nil
}

// truncateHostname cuts the name to maxHostname bytes and records a warning if it is longer.
func truncateHostname(pod *corev1.Pod, name string, opts Options) string {
	if len(name) <= maxHostname {
		return name
	}
	short := strings.TrimRight(name[:maxHostname], "-.") // not empty: a hostname starts with a letter or digit
	opts.recordWarning(pod, "HostnameTruncated", fmt.Sprintf("host name %q is longer than %d characters, %q is used", name, maxHostname, short))
	return short
}

// portMappings returns the ports of the regular containers, without duplicate ports of a container. Source: MakePortMappings in
// pkg/kubelet/container/helpers.go.
func portMappings(pod *corev1.Pod, opts Options) []cri.PortMapping {
	var all []cri.PortMapping
	for i := range pod.Spec.Containers {
		seen := make(map[string]bool)
		for _, p := range pod.Spec.Containers[i].Ports {
			key := p.Name
			if key == "" {
				key = fmt.Sprintf("%s-%s-%s:%d:%d", ipFamily(p.HostIP), p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
			}
			if seen[key] {
				opts.recordWarning(pod, "DuplicatePort", fmt.Sprintf("container %q has port %q more than once", pod.Spec.Containers[i].Name, key))
				continue
			}
			seen[key] = true
			all = append(all, cri.PortMapping{
				Protocol:      convertProtocol(p.Protocol),
				ContainerPort: p.ContainerPort,
				HostPort:      p.HostPort,
				HostIP:        p.HostIP,
			})
		}
	}
	return all
}

// ipFamily returns the IP family of an address: v4, v6, or any for an empty address.
func ipFamily(ip string) string {
	if ip == "" {
		return "any"
	}
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
		return "v6"
	}
	return "v4"
}

// convertProtocol converts a port protocol; TCP is the default.
func convertProtocol(proto corev1.Protocol) cri.Protocol {
	switch proto {
	case corev1.ProtocolUDP:
		return cri.UDP
	case corev1.ProtocolSCTP:
		return cri.SCTP
	default:
		return cri.TCP
	}
}

// sandboxSecurity returns the security settings of the pod's sandbox: namespaces, user, groups and SELinux options.
func sandboxSecurity(pod *corev1.Pod, opts Options) (cri.SandboxSecurity, error) {
	s := cri.SandboxSecurity{
		// The pause process needs no other profile, even if containers have one.
		Seccomp: &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault},
	}
	for c := range podfield.Containers(&pod.Spec) {
		s.Privileged = s.Privileged || c.IsPrivileged()
	}
	var err error
	if s.Namespaces, err = podNamespaces(pod, opts); err != nil {
		return s, err
	}
	sc := optional.OrZero(pod.Spec.SecurityContext)
	s.RunAsUser, s.RunAsGroup = sc.RunAsUser, sc.RunAsGroup
	s.SELinux = convertSELinux(sc.SELinuxOptions)
	s.SupplementalGroups = slices.Concat(fsGroup(sc), opts.volumeGroups(pod), sc.SupplementalGroups)
	s.SupplementalGroupsPolicy, err = groupsPolicy(sc)
	return s, err
}

// checkValue returns an error for the field at path if valid(value) returns messages that describe why value is invalid.
func checkValue(path *field.Path, value string, valid func(string) []string) error {
	if msgs := valid(value); len(msgs) > 0 {
		return field.Invalid(path, value, strings.Join(msgs, "; "))
	}
	return nil
}

// convertSysctls returns the values of the pod's sysctls by name. In a name such as net/ipv4/ip_forward, dots replace the
// slashes.
func convertSysctls(pod *corev1.Pod) map[string]string {
	sc := pod.Spec.SecurityContext
	if sc == nil || len(sc.Sysctls) == 0 {
		return nil
	}
	m := make(map[string]string, len(sc.Sysctls))
	for _, s := range sc.Sysctls {
		m[podfield.SysctlName(s.Name)] = s.Value
	}
	return m
}
