// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/internal/verbosity"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// defaultRootDir is the default of the field rootDir, the directory for all files of the agent.
const defaultRootDir = "/var/lib/nodeagent"

// Documents is the configuration of a node: a KubeletConfiguration and a NodeConfiguration. The zero value of a field means its
// default.
type Documents struct {
	Kubelet Configuration
	Node    NodeConfiguration

	origins map[string]string // file that has set a field, by name of the field; nil: not loaded from files
}

// SetBy records that source, such as a command-line flag, has set fields after LoadDir. Errors of Validate about these fields name source in place of
// the file. fields are JSON names at the top level of a document.
func (d *Documents) SetBy(source string, fields ...string) {
	origins := maps.Clone(d.origins) // copies of d share the map
	if origins == nil {
		origins = map[string]string{}
	}
	for _, field := range fields {
		origins[field] = source
	}
	d.origins = origins
}

// ParseDocuments parses the content of a file like [Load], but leaves relative paths as they are. It does not set defaults or check values: call
// SetDefaults and Validate.
func ParseDocuments(data []byte) (Documents, error) {
	if len(data) > maxSize {
		return Documents{}, fmt.Errorf("must not be larger than %d bytes", maxSize)
	}
	set, err := parseDocumentSet(data, false)
	if err != nil {
		return Documents{}, err
	}
	d, errs := set.decodeDocuments()
	return d, errors.Join(errs...)
}

// documentSet has the decoded fields of both documents of a file. A missing document is nil.
type documentSet struct{ kubelet, node object }

// requireDocument returns an error for a file without a document, such as a file of comments.
func (s documentSet) requireDocument() error {
	if s.kubelet == nil && s.node == nil {
		return fmt.Errorf("kind: missing, want %s or %s", Kind, NodeKind)
	}
	return nil
}

// decodeDocuments decodes both documents into their Go types. The caller has checked the fields. It returns an error for each unsupported value.
func (s documentSet) decodeDocuments() (d Documents, errs []error) {
	if s.kubelet != nil {
		d.Kubelet, errs = newConfiguration(s.kubelet)
	}
	if s.node != nil {
		if err := decodeFields(s.node, &d.Node); err != nil {
			errs = append(errs, err)
		}
	}
	if other := d.Kubelet.other; other != nil && s.node["logLevel"] == nil {
		d.Node.LogLevel = verbosity.Level(uint64(other.Logging.Verbosity))
	}
	return d, errs
}

// parseDocumentSet parses a file with at most one document of each kind. It checks the names and types of their fields. If isPatch is true, null is
// valid for each field.
func parseDocumentSet(data []byte, isPatch bool) (set documentSet, err error) {
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return set, nil
		}
		if err != nil {
			return set, err
		}
		fields, err := parseObject(document)
		if err != nil {
			return set, err
		}
		if len(fields) == 0 { // such as comments
			continue
		}
		checked := fields
		if isPatch {
			checked, _ = parseObject(document)
			withoutNulls(checked)
		}
		if err := set.addDocument(fields, checked); err != nil {
			return set, err
		}
	}
}

// addDocument stores fields as the document of its kind. It checks the fields in checked: those of a patch without nulls, or fields itself.
func (s *documentSet) addDocument(fields, checked object) error {
	version, kind := textOf(fields["apiVersion"]), textOf(fields["kind"])
	var errs []error
	switch {
	case version == APIVersion && kind == Kind && s.kubelet == nil:
		s.kubelet, errs = fields, checkKubeletFields(checked)
	case version == NodeAPIVersion && kind == NodeKind && s.node == nil:
		s.node, errs = fields, checkFields(reflect.TypeFor[NodeConfiguration](), "", checked)
	case kind == Kind && version == APIVersion || kind == NodeKind && version == NodeAPIVersion:
		errs = append(errs, fmt.Errorf("kind: there are two documents of kind %s", kind))
	case kind == "":
		errs = append(errs, fmt.Errorf("kind: missing, want %s or %s", Kind, NodeKind))
	default:
		errs = append(errs, fmt.Errorf("apiVersion and kind: %q and %q are not supported", version, kind))
	}
	return errors.Join(errs...)
}

// InCluster reports whether the node belongs to a cluster, that is whether it has a kubeconfig, which is not for tokens alone.
func (d *Documents) InCluster() bool { return d.Node.Kubeconfig != "" && !d.Node.TokensOnly }

// SetDefaults sets each missing field of both documents to its default. It makes directory paths absolute, because a
// container runtime has another working directory. It returns an error if nodeName is not set and the host has no name.
func (d *Documents) SetDefaults() error {
	n, k := &d.Node, &d.Kubelet
	n.RootDir = cmp.Or(n.RootDir, defaultRootDir)
	if k.ContainerRuntimeEndpoint == "" { // log collectors read the kubelet's directory, which plain processes of a user may not write to
		k.PodLogsDir = cmp.Or(k.PodLogsDir, filepath.Join(n.RootDir, "logs"))
	}
	k.SetDefaults(Defaults{Cluster: d.InCluster(), RemoteRuntime: k.ContainerRuntimeEndpoint != "", HostSettings: n.HostSettings})
	host, err := os.Hostname()
	n.NodeName = cmp.Or(n.NodeName, strings.ToLower(host))
	if n.NodeName == "" {
		return fmt.Errorf("nodeName: not set, and the host has no name: %w", err)
	}
	if k.PodLogsDir == podspec.DefaultLogRoot {
		n.ContainerLogsDir = cmp.Or(n.ContainerLogsDir, podspec.DefaultLogLinks)
	}
	n.CertDir = cmp.Or(n.CertDir, filepath.Join(n.RootDir, "pki"))
	paths := []*string{&n.RootDir, &n.CertDir, &n.ContainerLogsDir}
	if !filepath.IsAbs(k.PodLogsDir) { // Validate checks that an absolute path is normalized
		paths = append(paths, &k.PodLogsDir)
	}
	for _, path := range paths {
		if absolute, err := filepath.Abs(*path); *path != "" && err == nil { // the path stays as it is where there is no working directory
			*path = absolute
		}
	}
	if len(n.NodeIPs) == 0 && !d.InCluster() && k.ContainerRuntimeEndpoint == "" { // plain processes have the addresses of the host
		n.NodeIPs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return nil
}

// Validate returns an error for each field with an invalid value, and for each conflict between fields. The errors are
// joined. Call it after SetDefaults.
func (d *Documents) Validate() error {
	n, k, cluster := &d.Node, &d.Kubelet, d.InCluster()
	errs := k.validate()
	isPlain := k.ContainerRuntimeEndpoint == "" && !*k.CgroupsPerQOS
	const needsCgroups = " needs containerRuntimeEndpoint, or cgroupsPerQOS and an agent of root: a plain process has a cpuset only in a cgroup"
	for _, conflict := range []struct {
		present bool
		message string
	}{
		{n.ObjectsDir != "" && cluster, "objectsDir and kubeconfig are both set: config maps and secrets are those of the API server"},
		{n.ManifestSocket != "" && k.StaticPodPath == "", "manifestSocket needs staticPodPath: the directory that the socket serves"},
		{n.KeepObjects && !cluster, "keepObjects needs kubeconfig: other config maps and secrets are on disk already"},
		{n.TokensOnly && n.Kubeconfig == "", "tokensOnly needs kubeconfig: the API server issues the tokens"},
		{n.TokensOnly && *k.RegisterNode, "registerNode and tokensOnly are both true: there is no Node object with tokensOnly"},
		{n.Reregister && cluster && !*k.RegisterNode, "reregister needs registerNode: only a registered Node is registered again"},
		{k.RotateCertificates && n.Kubeconfig == "", "rotateCertificates needs kubeconfig: the certificate is written there"},
		{
			n.UnhealthyDevices != "" && n.UnhealthyDevices != EvictUnhealthy && n.UnhealthyDevices != RestartUnhealthy,
			fmt.Sprintf("unhealthyDevices: %q is not %s or %s", n.UnhealthyDevices, EvictUnhealthy, RestartUnhealthy),
		},
		{n.BootstrapKubeconfig != "" && n.Kubeconfig == "", "bootstrapKubeconfig needs kubeconfig: the certificate is written there"},
		{k.ServerTLSBootstrap && !cluster, "serverTLSBootstrap needs kubeconfig: the certificate is for the addresses of its Node"},
		{isPlain && k.CPUManagerPolicy == cpus.PolicyStatic, "cpuManagerPolicy static" + needsCgroups},
		{isPlain && k.MemoryManagerPolicy == numa.PolicyStatic, "memoryManagerPolicy Static" + needsCgroups},
		{
			*k.EnableServer && k.Authorization.Mode == webhook && !cluster,
			"authorization.mode Webhook needs kubeconfig: the API server decides",
		},
		{
			*k.EnableServer && *k.Authentication.Webhook.Enabled && !cluster,
			"authentication.webhook.enabled needs kubeconfig: the API server knows the user of a token",
		},
	} {
		if conflict.present {
			errs = append(errs, errors.New(conflict.message))
		}
	}
	return errors.Join(d.nameFiles(errs)...)
}
