// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// ForbiddenSysctls returns an error for each sysctl of the pod that is forbidden on this node. Safe sysctls (as of Linux
// 4.15) and those in allowed, where a trailing * matches any suffix, are permitted, unless the pod shares their namespace
// with the host. The kubelet rejects such a pod with reason SysctlForbidden. Source: pkg/kubelet/sysctl.
func ForbiddenSysctls(pod *corev1.Pod, allowed []string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "securityContext", "sysctls")
	allowed = append(safeSysctls(), allowed...)
	for i, s := range optional.OrZero(pod.Spec.SecurityContext).Sysctls {
		name := podfield.SysctlName(s.Name)
		matches := func(pattern string) bool {
			prefix, star := strings.CutSuffix(podfield.SysctlName(pattern), "*")
			return prefix == name || star && strings.HasPrefix(name, prefix)
		}
		detail := ""
		if !slices.ContainsFunc(allowed, matches) {
			detail = fmt.Sprintf("%q not allowlisted", name)
		} else if namespace := sharedNamespace(&pod.Spec, name); namespace != "" {
			detail = fmt.Sprintf("%q not allowed with host %s enabled", name, namespace)
		}
		if detail != "" {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"), detail))
		}
	}
	return fielderr.Short(errs)
}

// sharedNamespace returns the host namespace that a sysctl of the pod would change, IPC, Net or User, or "".
func sharedNamespace(spec *corev1.PodSpec, name string) string {
	switch {
	case isIPCSysctl(name) && spec.HostIPC:
		return "IPC"
	case strings.HasPrefix(name, "net.") && spec.HostNetwork:
		return "Net"
	case strings.HasPrefix(name, "user.") && (spec.HostUsers == nil || *spec.HostUsers):
		return "User"
	}
	return ""
}

// safeSysctls returns the names of the sysctls that affect only the pod that sets them.
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle",
		"net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
	}
}

func validateSysctls(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	valid := regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)
	seen := make(map[string]bool)
	for i, sysctl := range spec.SecurityContext.Sysctls {
		path := path.Index(i).Child("name")
		switch name := podfield.SysctlName(sysctl.Name); {
		case sysctl.Name == "":
			errs = append(errs, field.Required(path, ""))
		case len(sysctl.Name) > 253 || !valid.MatchString(sysctl.Name):
			errs = append(errs, field.Invalid(path, sysctl.Name, "must have at most 253 characters and match regex "+valid.String()))
		case seen[sysctl.Name]:
			errs = append(errs, field.Duplicate(path, sysctl.Name))
		case spec.HostNetwork && strings.HasPrefix(name, "net."):
			errs = append(errs, field.Invalid(path, sysctl.Name, "may not be specified when `hostNetwork` is true"))
		case spec.HostIPC && isIPCSysctl(name):
			errs = append(errs, field.Invalid(path, sysctl.Name, "may not be specified when `hostIPC` is true"))
		}
		seen[sysctl.Name] = true
	}
	return errs
}

func isIPCSysctl(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
		strings.HasPrefix(name, "fs.mqueue.")
}
