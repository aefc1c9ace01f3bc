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

// judge refuses a config with unsupported fields, or only warns where the options say so.
// Whose config it is, log says.
func (r *Runtime) judge(log *slog.Logger, unsupported []string) error {
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

// unsupportedSandbox returns the fields without which the pod would not mean the same, each with its value. networks says
// that sandboxes can have a network of their own.
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

// networkSysctls returns the kernel parameters of a network namespace in a config. All others would change the host: judge refuses or
// ignores them.
func networkSysctls(sysctls map[string]string) map[string]string {
	namespaced := maps.Clone(sysctls)
	maps.DeleteFunc(namespaced, func(name, _ string) bool { return !shim.IsNetworkSysctl(name) })
	return namespaced
}

// unsupportedContainer is unsupportedSandbox for a container of an agent with the effective user ID euid. mounted says
// that containers have mounts.
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

// unsupportedUser returns what an agent that is not root cannot give.
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

// describe returns a new container as List shows it.
func describe(c *cri.ContainerConfig, s *sandbox) cri.Container {
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

// specOf returns what a shim has to run, and where.
func (r *Runtime) specOf(config *cri.ContainerConfig, s *sandbox, c *container) (shim.Spec, error) {
	spec, err := translate.Command(config, s.LogDirectory, mark(c.ID))
	if err != nil {
		return spec, err
	}
	r.mu.Lock()
	network := s.Network
	r.mu.Unlock()
	if network != nil {
		// The record of an earlier version may also have parameters of the host.
		spec.Netns, spec.Hostname, spec.Sysctls = network.Netns, s.Hostname, networkSysctls(s.Sysctls)
	}
	r.mountsOf(config, s, &spec)
	return spec, r.confine(c, s, config.Resources, &spec)
}
