// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// APIVersion and Kind are the type of the document of a NodeConfiguration.
const (
	APIVersion = "nodeagent/v1alpha1"
	Kind       = "NodeConfiguration"
)

// Config is the configuration of a node. The zero value of each field means its default.
type Config struct {
	Kubelet kubeletconfig.Configuration // the kubelet's configuration file
	Node    NodeConfiguration
}

// NodeConfiguration holds the settings that a kubelet takes from its flags, and those that no kubelet has.
type NodeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	NodeName   string            `json:"nodeName,omitempty"`   // --hostname-override; the name of the host
	NodeIPs    []netip.Addr      `json:"nodeIPs,omitempty"`    // --node-ip; those of the Node object, or 127.0.0.1 for plain processes without a cluster
	NodeLabels map[string]string `json:"nodeLabels,omitempty"` // --node-labels
	Reregister bool              `json:"reregister,omitempty"` // create the Node object again after it was deleted
	RootDir    string            `json:"rootDir,omitempty"`    // --root-dir; /var/lib/nodeagent

	Kubeconfig          string `json:"kubeconfig,omitempty"`          // --kubeconfig; none: the node belongs to no cluster, and pods have no service accounts
	BootstrapKubeconfig string `json:"bootstrapKubeconfig,omitempty"` // --bootstrap-kubeconfig; needs rotateCertificates

	ObjectsDir     string `json:"objectsDir,omitempty"`     // config maps, secrets, services and volumes of a node without a cluster, see objects.Dir
	KeepObjects    bool   `json:"keepObjects,omitempty"`    // objects of running pods are kept on disk, for restarts while the API server is away
	ManifestSocket string `json:"manifestSocket,omitempty"` // unix socket that serves the manifests of staticPodPath to read and write, see source.NewHandler
	SharedMounts   bool   `json:"sharedMounts,omitempty"`   // for mountPropagation, where the root of the host is no shared mount

	DockerConfigFiles        []string                `json:"dockerConfigFiles,omitempty"`        // registry credentials; the first file that exists counts
	CredentialProviders      credential.PluginConfig `json:"credentialProviders,omitempty"`      // --image-credential-provider-config
	CredentialProviderBinDir string                  `json:"credentialProviderBinDir,omitempty"` // --image-credential-provider-bin-dir

	ParallelStarts   int        `json:"parallelStarts,omitempty"`   // pods that start at the same time; twice the processors
	ContainerLogsDir string     `json:"containerLogsDir,omitempty"` // links for log collectors; /var/log/containers where podLogsDir is /var/log/pods, else none
	ForeignPods      bool       `json:"foreignPods,omitempty"`      // remove leftovers of other agents and of none, too
	DrainOnExit      bool       `json:"drainOnExit,omitempty"`      // terminate the pods when Run ends
	LogLevel         slog.Level `json:"logLevel,omitempty"`         // INFO
	SystemBus        string     `json:"systemBus,omitempty"`        // socket of the message bus of logind; the system's
	LogindConfigDir  string     `json:"logindConfigDir,omitempty"`  // where logind reads how long to wait; the system's
}

// LoadConfig reads a file of YAML documents, at most one KubeletConfiguration and one NodeConfiguration. An error begins with the path, and
// names the field.
func LoadConfig(path string) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, kubeletconfig.MaxSize+1))
	if err == nil && len(data) > kubeletconfig.MaxSize {
		err = fmt.Errorf("must not be larger than %d bytes", kubeletconfig.MaxSize)
	}
	var c Config
	if err == nil {
		c, err = ParseConfig(data)
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig reads what LoadConfig reads from a file.
func ParseConfig(data []byte) (c Config, err error) {
	seen := map[string]bool{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		var kind metav1.TypeMeta
		if err = cmp.Or(err, yaml.Unmarshal(document, &kind)); err != nil {
			return c, err
		}
		if seen[kind.Kind] {
			return c, fmt.Errorf("kind: there are two documents of kind %s", kind.Kind)
		}
		seen[kind.Kind] = true
		switch kind {
		case metav1.TypeMeta{}: // comments alone
			if len(bytes.TrimSpace(document)) > 0 {
				var anything map[string]any
				if err = yaml.Unmarshal(document, &anything); err == nil && len(anything) > 0 {
					err = fmt.Errorf("kind: missing, want %s or %s", kubeletconfig.Kind, Kind)
				}
			}
		case metav1.TypeMeta{APIVersion: kubeletconfig.APIVersion, Kind: kubeletconfig.Kind}:
			c.Kubelet, err = kubeletconfig.Parse(document)
		case metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}:
			err = c.Node.parse(document)
		default:
			err = fmt.Errorf("apiVersion and kind: %s and %s are not supported", kind.APIVersion, kind.Kind)
		}
		if err != nil {
			return c, err
		}
	}
}

func (n *NodeConfiguration) parse(document []byte) error {
	fields := map[string]json.RawMessage{}
	if err := yaml.UnmarshalStrict(document, &fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) { // one by one: errors of the decoder do not name the field
		if err := yaml.UnmarshalStrict(fmt.Appendf(nil, "{%q: %s}", name, fields[name]), n); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// joins reports whether the machine is a node of a cluster.
func (c *Config) joins() bool { return c.Node.Kubeconfig != "" && *c.Kubelet.RegisterNode }

// serves reports whether the agent serves the API of the node.
func (c *Config) serves() bool { return *c.Kubelet.EnableServer }

// path returns the path of a file of the agent, or nothing where it keeps none.
func (c *Config) path(name string) string {
	if c.Node.RootDir == "" {
		return ""
	}
	return filepath.Join(c.Node.RootDir, name)
}

// complete sets defaults and refuses what is invalid.
func (c *Config) complete(o *Options) error {
	if i := slices.Index(o.Sources, nil); i >= 0 {
		return fmt.Errorf("Options.Sources[%d] is nil", i)
	}
	n, k := &c.Node, &c.Kubelet
	evicts := len(k.EvictionHard) > 0 || len(k.EvictionSoft) > 0
	k.SetDefaults(kubeletconfig.Defaults{Cluster: n.Kubeconfig != "", RemoteRuntime: k.ContainerRuntimeEndpoint != "" && o.Runtime == nil})
	host, err := os.Hostname()
	n.NodeName, n.RootDir = cmp.Or(n.NodeName, strings.ToLower(host)), cmp.Or(n.RootDir, "/var/lib/nodeagent")
	if k.PodLogsDir == podspec.DefaultLogRoot {
		n.ContainerLogsDir = cmp.Or(n.ContainerLogsDir, podspec.DefaultLogLinks)
	}
	if n.NodeName == "" {
		return fmt.Errorf("nodeName: not set, and the host has no name: %w", err)
	}
	if err := errors.Join(k.Validate(), c.contradictions(o, evicts)); err != nil {
		return err
	}
	for _, path := range []*string{&n.RootDir, &k.PodLogsDir, &n.ContainerLogsDir} { // a runtime has another working directory
		if *path != "" {
			*path, _ = filepath.Abs(*path) // the path stays as it is where there is no working directory
		}
	}
	if len(n.NodeIPs) == 0 && !c.joins() && k.ContainerRuntimeEndpoint == "" { // plain processes have the addresses of the host
		n.NodeIPs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	if o.Ephemeral {
		n.RootDir, k.PodLogsDir, n.ContainerLogsDir = "", "", ""
		return nil
	}
	return os.MkdirAll(n.RootDir, 0o700)
}

// contradictions refuses settings that need others. Evicts says that the file has thresholds.
func (c *Config) contradictions(o *Options, evicts bool) error {
	n, k := &c.Node, &c.Kubelet
	var errs []error
	for message, wrong := range map[string]bool{
		"Options.Sources, staticPodPath, staticPodURL and kubeconfig are not set: there would be no pods to run": len(o.Sources) == 0 && len(c.sources()) == 0,
		"Options.Runtime and containerRuntimeEndpoint are both set":                                              o.Runtime != nil && k.ContainerRuntimeEndpoint != "",
		"Options.Ephemeral needs Options.Runtime: another runtime reads files of the agent":                      o.Ephemeral && o.Runtime == nil,
		"rotateCertificates and serverTLSBootstrap need a rootDir: Options.Ephemeral has none":                   o.Ephemeral && (k.RotateCertificates || k.ServerTLSBootstrap),
		"enableServer needs a rootDir: Options.Ephemeral has none":                                               o.Ephemeral && c.serves(),
		"Options.Hosts needs kubeconfig: the addresses are those of a Node object":                               o.Hosts != nil && !c.joins(),
		"Options.Plugins needs containerRuntimeEndpoint: another runtime cannot mount":                           len(o.Plugins) > 0 && k.ContainerRuntimeEndpoint == "",
		"Options.Ranker needs cgroupsPerQOS or Options.Measurer: without these no pod is evicted":                o.Ranker != nil && !*k.CgroupsPerQOS && o.Measurer == nil,
		"objectsDir and kubeconfig are both set: config maps and secrets are those of the API server":            n.ObjectsDir != "" && c.joins(),
		"objectsDir and Options.Objects are both set":                                                            n.ObjectsDir != "" && o.Objects != nil,
		"Options.Objects and kubeconfig are both set: config maps and secrets are those of the API server":       o.Objects != nil && c.joins(),
		"manifestSocket needs staticPodPath: the directory that the socket serves":                               n.ManifestSocket != "" && k.StaticPodPath == "",
		"keepObjects needs kubeconfig: other config maps and secrets are on disk already":                        n.KeepObjects && !c.joins(),
		"rotateCertificates needs kubeconfig: the certificate is written there":                                  k.RotateCertificates && n.Kubeconfig == "",
		"bootstrapKubeconfig needs rotateCertificates":                                                           n.BootstrapKubeconfig != "" && !k.RotateCertificates,
		"serverTLSBootstrap needs kubeconfig: the certificate is for the addresses of its Node":                  k.ServerTLSBootstrap && !c.joins(),
		"cgroupsPerQOS needs containerRuntimeEndpoint: a runtime that has cgroups":                               *k.CgroupsPerQOS && k.ContainerRuntimeEndpoint == "",
		"evictionHard and evictionSoft need cgroupsPerQOS, whose cgroups are measured, or Options.Measurer":      evicts && !*k.CgroupsPerQOS && o.Measurer == nil,
		"authorization.mode Webhook needs kubeconfig: the API server decides":                                    c.serves() && k.Authorization.Mode == kubeletconfig.Webhook && !c.joins(),
		"authentication.webhook.enabled needs kubeconfig: the API server knows whose a token is":                 c.serves() && *k.Authentication.Webhook.Enabled && !c.joins(),
	} {
		if wrong {
			errs = append(errs, errors.New(message))
		}
	}
	names := map[string]bool{}
	for i, name := range c.sourceNames(o) {
		if name == "" || names[name] {
			errs = append(errs, fmt.Errorf("source %d: the name %q is empty, or that of another source", i, name))
		}
		names[name] = true
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
