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

// rejectUnsupported returns an error if there are unsupported fields. With Options.IgnoreUnsupported it only logs a warning for
// each; log identifies the pod or container.
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

// unsupportedSandbox returns the fields of c that this runtime cannot implement, each with its value. networks means that
// Options.Network is set.
func unsupportedSandbox(c *cri.SandboxConfig, networks bool) []string {
	own := networks && c.Security.Namespaces.Network != cri.NamespaceNode
	var fields []string
	if c.RuntimeHandler != "" {
		fields = append(fields, fmt.Sprintf("runtime_handler %q", c.RuntimeHandler))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		if !own || !shim.IsNetworkSysctl(name) {
			fields = append(fields, fmt.Sprintf("sysctls: %s=%s would change the host", name, c.Sysctls[name]))
		}
	}
	for i, p := range c.Ports {
		if !own && p.HostPort != 0 && p.HostPort != p.ContainerPort {
			fields = append(fields, fmt.Sprintf("port_mappings[%d]: host_port %d for container_port %d", i, p.HostPort, p.ContainerPort))
		}
	}
	return append(fields, unsupportedUserNamespace(c.Security.Namespaces)...)
}

// networkSysctls returns the sysctls of a network namespace among those of a config. All others would change the host;
// unsupportedSandbox reports them.
func networkSysctls(sysctls map[string]string) map[string]string {
	namespaced := maps.Clone(sysctls)
	maps.DeleteFunc(namespaced, func(name, _ string) bool { return !shim.IsNetworkSysctl(name) })
	return namespaced
}

// unsupportedContainer returns the fields of c that this runtime cannot implement, for an agent with the effective user ID euid.
// mounted means that Options.Mounts is set.
func unsupportedContainer(c *cri.ContainerConfig, euid int, mounted bool) []string {
	var fields []string
	for i := range c.Mounts {
		if field := unsupportedMount(i, &c.Mounts[i], mounted); field != "" {
			fields = append(fields, field)
		}
	}
	for i, d := range c.Devices {
		if field := unsupportedDevice(i, d, mounted); field != "" {
			fields = append(fields, field)
		}
	}
	if len(c.CDIDevices) > 0 {
		fields = append(fields, fmt.Sprintf("cdi_devices %q", c.CDIDevices))
	}
	if euid != 0 {
		fields = append(fields, unsupportedUser(c.Security, euid)...)
	}
	return append(fields, unsupportedUserNamespace(c.Security.Namespaces)...)
}

// unsupportedUser returns the fields for another user or group, which only a root agent can implement.
func unsupportedUser(s cri.ContainerSecurity, euid int) []string {
	var fields []string
	if s.RunAsUser != nil && *s.RunAsUser != int64(euid) {
		fields = append(fields, fmt.Sprintf("run_as_user %d by an agent of user %d", *s.RunAsUser, euid))
	}
	if s.RunAsUsername != "" {
		fields = append(fields, fmt.Sprintf("run_as_username %q by an agent of user %d", s.RunAsUsername, euid))
	}
	if s.RunAsGroup != nil && *s.RunAsGroup != int64(os.Getegid()) {
		fields = append(fields, fmt.Sprintf("run_as_group %d by an agent of user %d", *s.RunAsGroup, euid))
	}
	if len(s.SupplementalGroups) > 0 {
		fields = append(fields, fmt.Sprintf("supplemental_groups %d by an agent of user %d", s.SupplementalGroups, euid))
	}
	return fields
}

func unsupportedUserNamespace(n cri.NamespaceOptions) []string {
	if n.User != nil && n.User.Mode != cri.NamespaceNode {
		return []string{fmt.Sprintf("namespace_options: user namespace in mode %s", n.User.Mode)}
	}
	return nil
}

// newContainer returns a created container for config c, with a new ID.
func newContainer(c *cri.ContainerConfig, s *sandbox) cri.Container {
	image := c.Image
	image.Annotations = maps.Clone(image.Annotations)
	signal := c.StopSignal
	if signal == "" {
		signal = "SIGTERM"
	}
	return cri.Container{
		ID:          newID(),
		SandboxID:   s.ID,
		PodUID:      s.Pod.UID,
		Name:        c.Name,
		Attempt:     c.Attempt,
		State:       cri.ContainerCreated,
		CreatedAt:   time.Now(),
		Image:       image,
		ImageRef:    c.Image.Image,
		ImageID:     c.Image.Image,
		Labels:      maps.Clone(c.Labels),
		Annotations: maps.Clone(c.Annotations),
		Mounts:      slices.Clone(c.Mounts),
		StopSignal:  signal,
	}
}

// newSpec returns the spec with which the shim starts the container.
func (r *Runtime) newSpec(config *cri.ContainerConfig, s *sandbox, c *container) (shim.Spec, error) {
	spec, err := translate.ShimSpec(config, s.LogDirectory, envMark(c.ID))
	if err != nil {
		return spec, err
	}
	r.mu.Lock()
	network := s.Network
	r.mu.Unlock()
	if network != nil {
		// Records of an earlier version may also contain sysctls of the host.
		spec.Netns, spec.Hostname, spec.Sysctls = network.Netns, s.Hostname, networkSysctls(s.Sysctls)
	}
	r.addMounts(config, s, &spec)
	return spec, r.setCgroup(c, s, config.Resources, &spec)
}
