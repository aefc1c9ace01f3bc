// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
)

// rejectUnsupported returns an error that lists the unsupported fields, or logs warnings with Options.IgnoreUnsupported.
func (r *Runtime) rejectUnsupported(log *slog.Logger, unsupported []string) error {
	if len(unsupported) == 0 {
		return nil
	}
	if !r.options.IgnoreUnsupported {
		return fmt.Errorf("%s: %w on a plain process", strings.Join(unsupported, "; "), errors.ErrUnsupported)
	}
	for _, field := range unsupported {
		log.Warn("ignoring unsupported field", "field", field)
	}
	return nil
}

// unsupportedSandbox returns one error text for each field of config that this runtime cannot implement. hasNetwork is true
// if Options.Network is set.
func unsupportedSandbox(config *cri.SandboxConfig, hasNetwork bool) []string {
	own := hasNetwork && config.Security.Namespaces.Network != cri.NamespaceNode
	var fields []string
	if config.RuntimeHandler != "" {
		fields = append(fields, fmt.Sprintf("runtime_handler %q", config.RuntimeHandler))
	}
	for _, name := range slices.Sorted(maps.Keys(config.Sysctls)) {
		if !own || !shim.IsNetworkSysctl(name) {
			fields = append(fields, fmt.Sprintf("sysctls: %s=%s would change the host", name, config.Sysctls[name]))
		}
	}
	for i, p := range config.Ports {
		if !own && p.HostPort != 0 && p.HostPort != p.ContainerPort {
			fields = append(fields, fmt.Sprintf("port_mappings[%d]: host_port %d for container_port %d", i, p.HostPort, p.ContainerPort))
		}
	}
	return append(fields, unsupportedUserNamespace(config.Security.Namespaces)...)
}

// networkSysctls returns those sysctls that belong to a network namespace. The remaining sysctls would change the host, and
// unsupportedSandbox reports them.
func networkSysctls(sysctls map[string]string) map[string]string {
	namespaced := maps.Clone(sysctls)
	maps.DeleteFunc(namespaced, func(name, _ string) bool { return !shim.IsNetworkSysctl(name) })
	return namespaced
}

// unsupportedContainer returns a text for each field of config that this runtime cannot implement for an agent of user euid.
func unsupportedContainer(config *cri.ContainerConfig, euid int, hasMounts bool) []string {
	var fields []string
	for i := range config.Mounts {
		if field := unsupportedMount(i, &config.Mounts[i], hasMounts); field != "" {
			fields = append(fields, field)
		}
	}
	for i, d := range config.Devices {
		if field := unsupportedDevice(i, d, hasMounts); field != "" {
			fields = append(fields, field)
		}
	}
	if len(config.CDIDevices) > 0 {
		fields = append(fields, fmt.Sprintf("cdi_devices %q", config.CDIDevices))
	}
	if euid != 0 {
		fields = append(fields, unsupportedUser(config.Security, euid)...)
	}
	return append(fields, unsupportedUserNamespace(config.Security.Namespaces)...)
}

// unsupportedUser returns a text for each field that requests a user or group that only root can set.
func unsupportedUser(security cri.ContainerSecurity, agentUID int) []string {
	var fields []string
	if security.RunAsUser != nil && *security.RunAsUser != int64(agentUID) {
		fields = append(fields, fmt.Sprintf("run_as_user %d by an agent of user %d", *security.RunAsUser, agentUID))
	}
	if security.RunAsUsername != "" {
		fields = append(fields, fmt.Sprintf("run_as_username %q by an agent of user %d", security.RunAsUsername, agentUID))
	}
	if security.RunAsGroup != nil && *security.RunAsGroup != int64(os.Getegid()) {
		fields = append(fields, fmt.Sprintf("run_as_group %d by an agent of user %d", *security.RunAsGroup, agentUID))
	}
	if len(security.SupplementalGroups) > 0 {
		fields = append(fields, fmt.Sprintf("supplemental_groups %d by an agent of user %d", security.SupplementalGroups, agentUID))
	}
	return fields
}

func unsupportedUserNamespace(n cri.NamespaceOptions) []string {
	if n.User != nil && n.User.Mode != cri.NamespaceNode {
		return []string{fmt.Sprintf("namespace_options: user namespace in mode %s", n.User.Mode)}
	}
	return nil
}

// unsupportedCpusets returns a text for each cpuset of a container that has no cgroup. Other resources only limit a container, but a
// program may rely on CPUs and memory that no other container uses.
func unsupportedCpusets(resources *cri.Resources, hasCgroups bool) (fields []string) {
	if resources == nil || hasCgroups {
		return nil
	}
	if set := resources.CpusetCPUs; set != "" {
		fields = append(fields, fmt.Sprintf("cpuset_cpus %q without Options.Cgroups", set))
	}
	if set := resources.CpusetMems; set != "" {
		fields = append(fields, fmt.Sprintf("cpuset_mems %q without Options.Cgroups", set))
	}
	return fields
}

// newContainer returns a container in state created, with a new ID and with the data of its config and its sandbox.
func newContainer(config *cri.ContainerConfig, sb *sandbox) cri.Container {
	image := config.Image
	image.Annotations = maps.Clone(image.Annotations)
	signal := config.StopSignal
	if signal == "" {
		signal = "SIGTERM"
	}
	return cri.Container{
		ID:          newID(),
		SandboxID:   sb.ID,
		PodUID:      sb.Pod.UID,
		Name:        config.Name,
		Attempt:     config.Attempt,
		State:       cri.ContainerCreated,
		CreatedAt:   time.Now(),
		Image:       image,
		ImageRef:    config.Image.Image,
		ImageID:     config.Image.Image,
		Labels:      maps.Clone(config.Labels),
		Annotations: maps.Clone(config.Annotations),
		Mounts:      slices.Clone(config.Mounts),
		StopSignal:  signal,
	}
}

// newSpec returns the spec with which the shim starts the container. It also sets the cgroup and the limits of ctr.
func (r *Runtime) newSpec(config *cri.ContainerConfig, sb *sandbox, ctr *container) (shim.Spec, error) {
	spec, err := translate.ShimSpec(config, sb.LogDirectory, envMark(ctr.ID))
	if err != nil {
		return spec, err
	}
	r.mu.Lock()
	network := sb.Network
	r.mu.Unlock()
	if network != nil {
		// Records of an earlier version may also contain sysctls of the host.
		spec.Netns, spec.Hostname, spec.Sysctls = network.Netns, sb.Hostname, networkSysctls(sb.Sysctls)
	}
	r.addMounts(config, sb, &spec)
	return spec, r.setCgroup(ctr, sb, config.Resources, &spec)
}
