// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// Config is the configuration of a node. Its field Kubelet has the settings of a kubelet's configuration file. Its field Node has settings that the
// kubelet has as flags or does not have, such as nodeName, rootDir and kubeconfig. The zero value of each setting means its default.
type Config = kubeletconfig.Documents

// LoadConfig reads a YAML file with at most one KubeletConfiguration and one NodeConfiguration. An error names the file and the invalid field.
func LoadConfig(path string) (Config, error) { return kubeletconfig.Load(path) }

// servesAPI reports whether the agent serves the HTTP API of the node.
func (a *Agent) servesAPI() bool { return *a.config.Kubelet.EnableServer }

// filePath returns the path of the named file in rootDir. It returns "" if Options.Ephemeral is set, because the agent then has no files.
func (a *Agent) filePath(name string) string {
	if a.options.Ephemeral {
		return ""
	}
	return filepath.Join(a.config.Node.RootDir, name)
}

// setDefaults sets missing fields of config to their defaults and creates rootDir. It returns an error for each invalid field of config or opts.
func setDefaults(config *Config, opts *Options) error {
	if i := slices.Index(opts.Sources, nil); i >= 0 {
		return fmt.Errorf("Options.Sources[%d] is nil", i)
	}
	if opts.API != nil && config.Node.Kubeconfig == "" { // with kubeconfig, Documents.InCluster decides
		config.Node.Kubeconfig = "Options.API"
	}
	if k := &config.Kubelet; opts.Ephemeral { // by default, an agent without files also opens no ports
		k.EnableServer, k.HealthzPort = cmp.Or(k.EnableServer, new(bool)), cmp.Or(k.HealthzPort, new(int32))
	}
	evicts := len(config.Kubelet.EvictionHard) > 0 || len(config.Kubelet.EvictionSoft) > 0 // the file has thresholds
	if err := config.SetDefaults(); err != nil {
		return err
	}
	if err := errors.Join(config.Validate(), checkOptions(config, opts, evicts)); err != nil {
		return err
	}
	if opts.Ephemeral {
		config.Node.RootDir, config.Kubelet.PodLogsDir, config.Node.ContainerLogsDir = "", "", ""
		return nil
	}
	return os.MkdirAll(config.Node.RootDir, 0o700)
}

// checkOptions returns an error for each conflict between opts and config. evicts is true if the configuration file has eviction thresholds.
func checkOptions(config *Config, opts *Options, evicts bool) error {
	k, cluster := &config.Kubelet, config.InCluster()
	remote, measured := k.ContainerRuntimeEndpoint != "", *k.CgroupsPerQOS || opts.Measurer != nil
	certificates := k.RotateCertificates || k.ServerTLSBootstrap || config.Node.BootstrapKubeconfig != ""
	names := sourceNames(config, opts)
	var errs []error
	for _, conflict := range []struct {
		present bool
		message string
	}{
		{len(names) == 0, "Options.Sources, staticPodPath, staticPodURL and kubeconfig are not set: there would be no pods to run"},
		{opts.API != nil && (config.Node.Kubeconfig != "Options.API" || k.RotateCertificates), "Options.API excludes kubeconfig and rotateCertificates"},
		{opts.Runtime != nil && remote, "Options.Runtime and containerRuntimeEndpoint are both set"},
		{opts.Runtime != nil && *k.CgroupsPerQOS, "Options.Runtime and cgroupsPerQOS are both set: its cgroups are Options.Cgroups, and its pods have no exclusive CPUs"},
		{opts.Runtime == nil && (opts.Cgroups != nil || opts.Volumes != nil), "Options.Cgroups and Options.Volumes need Options.Runtime"},
		{opts.Cgroups != nil && opts.Machine == nil, "Options.Cgroups needs Options.Machine, the capacity of the simulated machine"},
		{opts.Ephemeral && opts.Runtime == nil, "Options.Ephemeral needs Options.Runtime: another runtime reads files of the agent"},
		{opts.Ephemeral && certificates, "rotateCertificates, serverTLSBootstrap and bootstrapKubeconfig need a rootDir: Options.Ephemeral has none"},
		{opts.Ephemeral && *k.EnableServer, "enableServer needs a rootDir: Options.Ephemeral has none"},
		{opts.Hosts != nil && !cluster, "Options.Hosts needs kubeconfig: the addresses are those of a Node object"},
		{len(opts.Plugins) > 0 && !remote, "Options.Plugins needs containerRuntimeEndpoint: another runtime cannot mount"},
		{opts.Ranker != nil && !measured, "Options.Ranker needs cgroupsPerQOS or Options.Measurer: without these no pod is evicted"},
		{opts.Objects != nil && config.Node.ObjectsDir != "", "objectsDir and Options.Objects are both set"},
		{opts.Objects != nil && cluster, "Options.Objects and kubeconfig are both set: config maps and secrets are those of the API server"},
		{evicts && !measured, "evictionHard and evictionSoft need cgroupsPerQOS, whose cgroups are measured, or Options.Measurer"},
	} {
		if conflict.present {
			errs = append(errs, errors.New(conflict.message))
		}
	}
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			errs = append(errs, fmt.Errorf("source %d: the name %q is empty, or that of another source", i, name))
		}
	}
	return errors.Join(errs...)
}

// sourceNames returns the names of all pod sources. The sources in config come first, then opts.Sources.
func sourceNames(config *Config, opts *Options) (names []string) {
	for _, s := range []struct {
		name       string
		configured bool
	}{{source.File, config.Kubelet.StaticPodPath != ""}, {source.URL, config.Kubelet.StaticPodURL != ""}, {apiserver.API, config.InCluster()}} {
		if s.configured {
			names = append(names, s.name)
		}
	}
	for _, s := range opts.Sources {
		names = append(names, s.Name())
	}
	return names
}
