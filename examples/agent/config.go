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
	HostIPs  []netip.Addr `json:"hostIPs"`  // of the node, for pods on its network; none: those of the Node, or 127.0.0.1 for plain processes of no cluster
	Runtime  string       `json:"runtime"`  // such as unix:///run/containerd/containerd.sock; empty: plain processes
	StateDir string       `json:"stateDir"` // empty: /var/lib/nodeagent

	Manifests   string `json:"manifests"`   // directory or file
	ManifestURL string `json:"manifestURL"` // asked every 20 s

	ManifestSocket string `json:"manifestSocket"` // unix socket that the manifests of the directory are read and written through, by HTTP

	Objects    string `json:"objects"`    // directory of config maps, secrets and services
	Kubeconfig string `json:"kubeconfig"` // of the API server whose node this is; empty: of none, and pods name no service accounts

	KeepObjects bool `json:"keepObjects"` // what running pods refer to is on disk too, such as config maps, secrets and claims, for when the API server is away

	BootstrapKubeconfig string `json:"bootstrapKubeconfig"` // with a token that gets the first certificate; empty: kubeconfig has one
	RotateCertificates  bool   `json:"rotateCertificates"`  // get, and replace in time, the certificate of kubeconfig; it is in stateDir

	SharedMounts bool `json:"sharedMounts"` // for mountPropagation, where the root of the host is no shared mount

	CgroupRoot     string       `json:"cgroupRoot"` // of kubepods; empty: pods get no cgroup
	ClusterDNS     []netip.Addr `json:"clusterDNS"`
	ClusterDomain  string       `json:"clusterDomain"`
	AllowedSysctls []string     `json:"allowedSysctls"`

	DockerConfigs       []string                `json:"dockerConfigs"`       // files with credentials; the first that is there counts
	CredentialPlugins   credential.PluginConfig `json:"credentialPlugins"`   // as in the kubelet's CredentialProviderConfig
	CredentialPluginDir string                  `json:"credentialPluginDir"` // where they lie

	evictionConfig // eviction.go
	nodeConfig     // node.go
	shutdownConfig // shutdown.go
	serverConfig   // api.go

	ParallelStarts int               `json:"parallelStarts"` // zero or less: twice the processors
	ParallelPulls  int               `json:"parallelPulls"`  // zero or less: 5
	LogDir         string            `json:"logDir"`         // empty: /var/log/pods
	LogLinkDir     string            `json:"logLinkDir"`     // links to the logs, for log collectors; empty: /var/log/containers for those in /var/log/pods, else none
	LogMaxSize     resource.Quantity `json:"logMaxSize"`     // zero: 10Mi
	LogMaxFiles    int               `json:"logMaxFiles"`    // zero: 5
	GC             gcConfig          `json:"gc"`             // what goes of itself: gc.go
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
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	f.StringVar(&c.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "kubeconfig with a token that gets the first certificate")
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
	if c.LogDir == podspec.DefaultLogRoot {
		c.LogLinkDir = cmp.Or(c.LogLinkDir, podspec.DefaultLogLinks)
	}
	switch {
	case c.NodeName == "":
		return fmt.Errorf("%s: nodeName is not set, and the host has no name: %w", from, err)
	case c.Manifests == "" && c.ManifestURL == "" && !c.joins():
		return fmt.Errorf("%s: neither manifests nor manifestURL nor kubeconfig is set: there would be nothing to run", from)
	case c.Objects != "" && c.joins():
		return fmt.Errorf("%s: objects and kubeconfig are both set: config maps and secrets are those of the API server", from)
	case c.ManifestSocket != "" && c.Manifests == "":
		return fmt.Errorf("%s: manifestSocket needs manifests: that is the directory", from)
	case c.KeepObjects && !c.joins():
		return fmt.Errorf("%s: keepObjects needs kubeconfig: other config maps and secrets are on disk already", from)
	case c.RotateCertificates && c.Kubeconfig == "":
		return fmt.Errorf("%s: rotateCertificates needs kubeconfig: it is written there", from)
	case c.BootstrapKubeconfig != "" && !c.RotateCertificates:
		return fmt.Errorf("%s: bootstrapKubeconfig needs rotateCertificates", from)
	case (c.EvictionHard != nil || c.EvictionSoft != nil) && (c.Runtime == "" || c.CgroupRoot == ""):
		return fmt.Errorf("%s: evictionHard and evictionSoft need runtime and cgroupRoot: the pods' cgroups are what is measured", from)
	}
	if _, err := c.periods(); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := c.checkServer(); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, path := range []*string{&c.StateDir, &c.LogDir, &c.LogLinkDir} { // a runtime has another working directory
		if *path != "" {
			*path, _ = filepath.Abs(*path) // it stays as it is where there is none
		}
	}
	if c.Runtime == "" && len(c.HostIPs) == 0 && !c.joins() { // plain processes have the addresses of the host; a Node has them itself
		c.HostIPs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return os.MkdirAll(c.StateDir, 0o700)
}

// state returns the path of something in the state directory.
func (c *config) state(name string) string { return filepath.Join(c.StateDir, name) }
