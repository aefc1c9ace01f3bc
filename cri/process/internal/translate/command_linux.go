// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// defaultPath is the PATH of a container whose config sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ShimSpec returns the spec of a shim with the command, environment, user and log of a container. mark is added to the
// environment, and logDir is the sandbox's log directory. The caller adds namespaces, mounts and cgroups.
func ShimSpec(config *cri.ContainerConfig, logDir, mark string) (shim.Spec, error) {
	s := shim.Spec{
		Argv:       slices.Concat(config.Command, config.Args),
		Dir:        config.WorkingDir,
		Stdin:      config.Stdin,
		StdinOnce:  config.StdinOnce,
		TTY:        config.TTY,
		NoNewPrivs: config.Security.NoNewPrivs,
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return s, fmt.Errorf("container %q has no command, and there is no image to take one from: set command", config.Name)
	}
	if i := slices.IndexFunc(s.Argv, hasNUL); i >= 0 {
		return s, fmt.Errorf("argument %d %q: holds a zero byte", i, s.Argv[i])
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if !filepath.IsAbs(s.Dir) {
		return s, fmt.Errorf("working_dir %q: not an absolute path", config.WorkingDir)
	}
	if _, err := Signal(config.StopSignal); err != nil {
		return s, err
	}
	var err error
	if s.Env, err = buildEnviron(config.Env, mark); err != nil {
		return s, err
	}
	if config.TTY && !slices.ContainsFunc(s.Env, func(entry string) bool { return strings.HasPrefix(entry, "TERM=") }) {
		s.Env = append(s.Env, "TERM=xterm")
	}
	if logDir != "" && config.LogPath != "" {
		if !filepath.IsLocal(config.LogPath) {
			return s, fmt.Errorf("log_path %q: not a path below the log directory", config.LogPath)
		}
		s.Log = filepath.Join(logDir, config.LogPath)
	}
	s.User, err = resolveUser(config.Security)
	return s, err
}

// buildEnviron returns the environment of a container: a default PATH, then vars, then mark, an entry NAME=VALUE. Of entries
// with the same name, the last is kept.
func buildEnviron(vars []cri.EnvVar, mark string) ([]string, error) {
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
