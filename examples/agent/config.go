// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// maxConfig is how many bytes the file may have.
const maxConfig = 1 << 20

// config is the YAML file of the agent. What is not in it has the defaults below; flags come before it.
type config struct {
	NodeName string       `json:"nodeName"` // empty: the host's
	HostIPs  []netip.Addr `json:"hostIPs"`  // of the node, for pods on its network; none: 127.0.0.1 for plain processes
	Runtime  string       `json:"runtime"`  // such as unix:///run/containerd/containerd.sock; empty: plain processes
	StateDir string       `json:"stateDir"` // empty: /var/lib/nodeagent

	Manifests   string `json:"manifests"`   // directory or file
	ManifestURL string `json:"manifestURL"` // asked every 20 s
	Objects     string `json:"objects"`     // directory of config maps, secrets and services

	SharedMounts bool `json:"sharedMounts"` // for mountPropagation, where the root of the host is no shared mount

	CgroupRoot     string       `json:"cgroupRoot"` // of kubepods; empty: pods get no cgroup
	ClusterDNS     []netip.Addr `json:"clusterDNS"`
	ClusterDomain  string       `json:"clusterDomain"`
	AllowedSysctls []string     `json:"allowedSysctls"`

	DockerConfigs       []string                `json:"dockerConfigs"`       // files with credentials; the first that is there counts
	CredentialPlugins   credential.PluginConfig `json:"credentialPlugins"`   // as in the kubelet's CredentialProviderConfig
	CredentialPluginDir string                  `json:"credentialPluginDir"` // where they lie

	ParallelStarts int               `json:"parallelStarts"` // zero or less: twice the processors
	ParallelPulls  int               `json:"parallelPulls"`  // zero or less: 5
	LogDir         string            `json:"logDir"`         // empty: /var/log/pods
	LogMaxSize     resource.Quantity `json:"logMaxSize"`     // zero: 10Mi
	LogMaxFiles    int               `json:"logMaxFiles"`    // zero: 5
	StopOnExit     bool              `json:"stopOnExit"`     // take the pods down on SIGTERM and SIGINT
	LogLevel       slog.Level        `json:"logLevel"`       // empty: INFO
}

// parse reads the flags and the file that they name.
func parse(args []string) (c config, err error) {
	var file string
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	f.StringVar(&file, "config", "", "YAML file, see config.go")
	f.StringVar(&c.NodeName, "node", "", "name of this node")
	f.StringVar(&c.Runtime, "runtime", "", "endpoint of the container runtime (none: plain processes)")
	f.StringVar(&c.Manifests, "manifests", "", "directory of pod manifests, or a single file")
	f.StringVar(&c.StateDir, "state", "", "directory of the agent's own files")
	_ = f.Parse(args) // it exits instead
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if file != "" {
		data, err := readConfig(file)
		fields := map[string]json.RawMessage{}
		if err = cmp.Or(err, yaml.UnmarshalStrict(data, &fields)); err != nil {
			return c, fmt.Errorf("%s: %w", file, err)
		}
		for name, value := range fields { // one by one, as decoding errors do not name the field
			if err := yaml.UnmarshalStrict(fmt.Appendf(nil, "{%q: %s}", name, value), &c); err != nil {
				return c, fmt.Errorf("%s: %s: %w", file, name, err)
			}
		}
		_ = f.Parse(args) // once more: flags come before the file
	}
	return c, c.complete(cmp.Or(file, "flags"))
}

// readConfig reads a file that is no larger than maxConfig, so that some other file does not take all memory.
func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		err = fmt.Errorf("must not be larger than %d bytes", maxConfig)
	}
	return data, err
}

// complete fills in what is not set, and refuses what is invalid. Errors say where the config is from.
func (c *config) complete(from string) error {
	host, err := os.Hostname()
	c.NodeName = cmp.Or(c.NodeName, strings.ToLower(host))
	c.StateDir, c.LogDir = cmp.Or(c.StateDir, "/var/lib/nodeagent"), cmp.Or(c.LogDir, podspec.DefaultLogRoot)
	switch {
	case c.NodeName == "":
		return fmt.Errorf("%s: nodeName is not set, and the host has no name: %w", from, err)
	case c.Manifests == "" && c.ManifestURL == "":
		return fmt.Errorf("%s: neither manifests nor manifestURL is set: there would be nothing to run", from)
	}
	for _, path := range []*string{&c.StateDir, &c.LogDir} { // a runtime has another working directory
		*path, _ = filepath.Abs(*path) // it stays as it is where there is none
	}
	if c.Runtime == "" && len(c.HostIPs) == 0 { // plain processes have the addresses of the host
		c.HostIPs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return os.MkdirAll(c.StateDir, 0o700)
}

// state returns the path of something in the state directory.
func (c *config) state(name string) string { return filepath.Join(c.StateDir, name) }
