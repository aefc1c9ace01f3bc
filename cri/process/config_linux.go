// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// defaultPath is the PATH of a container whose config has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// unsupportedSandbox returns the fields without which the pod would not mean the same, each with its value.
func unsupportedSandbox(c *cri.SandboxConfig) []string {
	var fields []string
	if c.RuntimeHandler != "" {
		fields = append(fields, fmt.Sprintf("runtime_handler %q", c.RuntimeHandler))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		fields = append(fields, fmt.Sprintf("sysctls: %s=%s would change the host", name, c.Sysctls[name]))
	}
	for i, p := range c.Ports {
		if p.HostPort != 0 && p.HostPort != p.ContainerPort {
			fields = append(fields, fmt.Sprintf("port_mappings[%d]: host_port %d for container_port %d", i, p.HostPort, p.ContainerPort))
		}
	}
	return append(fields, unsupportedUserNamespace(c.Security.Namespaces)...)
}

// unsupportedContainer is unsupportedSandbox for a container of an agent with the effective user ID euid.
func unsupportedContainer(c *cri.ContainerConfig, euid int) []string {
	var fields []string
	for i, m := range c.Mounts {
		at := fmt.Sprintf("mounts[%d]: container_path %q", i, m.ContainerPath)
		switch {
		case m.Image != nil:
			fields = append(fields, fmt.Sprintf("%s of image %q", at, m.Image.Image))
		case filepath.Clean(m.HostPath) != filepath.Clean(m.ContainerPath):
			fields = append(fields, fmt.Sprintf("%s with host_path %q", at, m.HostPath))
		case len(m.UIDMappings)+len(m.GIDMappings) > 0:
			fields = append(fields, at+" with ID mappings")
		}
	}
	for i, d := range c.Devices {
		if filepath.Clean(d.HostPath) != filepath.Clean(d.ContainerPath) {
			fields = append(fields, fmt.Sprintf("devices[%d]: container_path %q with host_path %q", i, d.ContainerPath, d.HostPath))
		}
	}
	if len(c.CDIDevices) > 0 {
		fields = append(fields, fmt.Sprintf("cdi_devices %q", c.CDIDevices))
	}
	if c.TTY {
		fields = append(fields, "tty true")
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

// specOf returns what a shim has to run.
func specOf(c *cri.ContainerConfig, logDir, mark string) (shim.Spec, error) {
	s := shim.Spec{
		Argv:       slices.Concat(c.Command, c.Args),
		Dir:        c.WorkingDir,
		Stdin:      c.Stdin,
		NoNewPrivs: c.Security.NoNewPrivs,
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return s, fmt.Errorf("container %q has no command, and there is no image to take one from: set command", c.Name)
	}
	if i := slices.IndexFunc(s.Argv, hasNUL); i >= 0 {
		return s, fmt.Errorf("argument %d %q: holds a zero byte", i, s.Argv[i])
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if !filepath.IsAbs(s.Dir) {
		return s, fmt.Errorf("working_dir %q: not an absolute path", c.WorkingDir)
	}
	if _, err := parseSignal(c.StopSignal); err != nil {
		return s, err
	}
	var err error
	if s.Env, err = environ(c.Env, mark); err != nil {
		return s, err
	}
	if logDir != "" && c.LogPath != "" {
		if !filepath.IsLocal(c.LogPath) {
			return s, fmt.Errorf("log_path %q: not a path below the log directory", c.LogPath)
		}
		s.Log = filepath.Join(logDir, c.LogPath)
	}
	s.User, err = userOf(c.Security)
	return s, err
}

// environ returns the whole environment of a container. Of a name that comes twice the later value counts.
func environ(vars []cri.EnvVar, mark string) ([]string, error) {
	env := []string{"PATH=" + defaultPath}
	index := map[string]int{"PATH": 0}
	for i, v := range vars {
		if v.Name == "" || strings.Contains(v.Name, "=") || hasNUL(v.Name) {
			return nil, fmt.Errorf("envs[%d]: %q is not a name", i, v.Name)
		}
		if hasNUL(v.Value) {
			return nil, fmt.Errorf("envs[%d]: the value of %s holds a zero byte", i, v.Name)
		}
		entry := v.Name + "=" + v.Value
		if at, ok := index[v.Name]; ok {
			env[at] = entry
			continue
		}
		index[v.Name] = len(env)
		env = append(env, entry)
	}
	name, _, _ := strings.Cut(mark, "=")
	if at, ok := index[name]; ok {
		env[at] = mark
		return env, nil
	}
	return append(env, mark), nil
}

func hasNUL(s string) bool { return strings.Contains(s, "\x00") }

// userOf returns who the container runs as, nil for the agent's own user. A user without a group gets the one that
// the host's user database gives it, and where that does not know the user, the group of the same number: never
// the agent's, which may be root.
func userOf(s cri.ContainerSecurity) (*shim.User, error) {
	if s.RunAsUser == nil && s.RunAsUsername == "" && s.RunAsGroup == nil && len(s.SupplementalGroups) == 0 {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, nil // what was asked for is what the agent is, or is ignored
	}
	ids := []int64{int64(os.Geteuid()), int64(os.Getegid())}
	var known *user.User
	switch {
	case s.RunAsUser != nil:
		ids[0], ids[1] = *s.RunAsUser, *s.RunAsUser
		known, _ = user.LookupId(strconv.FormatInt(*s.RunAsUser, 10))
	case s.RunAsUsername != "":
		var err error
		if known, err = user.Lookup(s.RunAsUsername); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", s.RunAsUsername, err)
		}
		if ids[0], err = strconv.ParseInt(known.Uid, 10, 64); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", s.RunAsUsername, err)
		}
	}
	if known != nil {
		if gid, err := strconv.ParseInt(known.Gid, 10, 64); err == nil {
			ids[1] = gid
		}
	}
	if s.RunAsGroup != nil {
		ids[1] = *s.RunAsGroup
	}
	u := &shim.User{Groups: make([]uint32, 0, len(s.SupplementalGroups))}
	for i, id := range append(ids, s.SupplementalGroups...) {
		if id < 0 || id >= 1<<32-1 {
			return nil, fmt.Errorf("security context: %d is not a user or group ID", id)
		}
		if i >= 2 {
			u.Groups = append(u.Groups, uint32(id))
		}
	}
	u.UID, u.GID = uint32(ids[0]), uint32(ids[1])
	return u, nil
}

func containerUser(u *shim.User) *cri.ContainerUser {
	c := &cri.ContainerUser{UID: int64(u.UID), GID: int64(u.GID)}
	for _, g := range u.Groups {
		c.SupplementalGroups = append(c.SupplementalGroups, int64(g))
	}
	return c
}

// The real-time signals as glibc numbers them; it keeps two for itself.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// parseSignal returns the number of a signal such as "SIGTERM" or "SIGRTMIN+3"; empty is SIGTERM.
func parseSignal(s cri.Signal) (unix.Signal, error) {
	if s == "" {
		return unix.SIGTERM, nil
	}
	if n := unix.SignalNum(string(s)); n != 0 {
		return n, nil
	}
	for _, base := range []struct {
		name string
		num  int
	}{{"SIGRTMIN", sigRTMin}, {"SIGRTMAX", sigRTMax}} {
		offset, ok := strings.CutPrefix(string(s), base.name)
		if !ok {
			continue
		}
		n := 0
		if offset != "" {
			var err error
			if n, err = strconv.Atoi(offset); err != nil {
				break
			}
		}
		if n += base.num; n >= sigRTMin && n <= sigRTMax {
			return unix.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("stop_signal %q: no such signal", s)
}
