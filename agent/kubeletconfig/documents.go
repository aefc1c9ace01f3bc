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
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// defaultRootDir is the default of the field rootDir, the directory for all files of the agent.
const defaultRootDir = "/var/lib/nodeagent"

// Documents is the configuration of a node: a KubeletConfiguration and a NodeConfiguration. The zero value of a field means its
// default.
type Documents struct {
	Kubelet Configuration
	Node    NodeConfiguration
}

// Load reads a YAML file with at most one KubeletConfiguration and one NodeConfiguration document. An error names the file
// and the invalid field.
func Load(path string) (Documents, error) {
	file, err := os.Open(path)
	if err != nil {
		return Documents{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	var d Documents
	if err == nil {
		d, err = ParseDocuments(data)
	}
	if err != nil {
		return Documents{}, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// ParseDocuments parses the content of a file like [Load]. It does not set defaults or check values: call SetDefaults and
// Validate.
func ParseDocuments(data []byte) (d Documents, err error) {
	if len(data) > maxSize {
		return d, fmt.Errorf("must not be larger than %d bytes", maxSize)
	}
	seen := map[string]bool{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		var kind metav1.TypeMeta
		if err = cmp.Or(err, yaml.Unmarshal(document, &kind)); err != nil {
			return d, err
		}
		if seen[kind.Kind] {
			return d, fmt.Errorf("kind: there are two documents of kind %s", kind.Kind)
		}
		seen[kind.Kind] = true
		switch kind {
		case metav1.TypeMeta{}:
			err = checkNoFields(document)
		case metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}:
			d.Kubelet, err = Parse(document)
		case metav1.TypeMeta{APIVersion: NodeAPIVersion, Kind: NodeKind}:
			err = d.Node.parse(document)
		default:
			err = fmt.Errorf("apiVersion and kind: %s and %s are not supported", kind.APIVersion, kind.Kind)
		}
		if err != nil {
			return d, err
		}
	}
}

// checkNoFields returns an error if the document has any field. It is called for a document without a kind, which may
// contain only comments.
func checkNoFields(document []byte) error {
	if len(bytes.TrimSpace(document)) == 0 {
		return nil
	}
	var fields map[string]any
	err := yaml.Unmarshal(document, &fields)
	if err == nil && len(fields) > 0 {
		err = fmt.Errorf("kind: missing, want %s or %s", Kind, NodeKind)
	}
	return err
}

// InCluster reports whether the node belongs to a cluster, that is whether it has a kubeconfig and registerNode is true.
// Call it after SetDefaults.
func (d *Documents) InCluster() bool { return d.Node.Kubeconfig != "" && *d.Kubelet.RegisterNode }

// SetDefaults sets each missing field of both documents to its default. It makes directory paths absolute, because a
// container runtime has another working directory. It returns an error if nodeName is not set and the host has no name.
func (d *Documents) SetDefaults() error {
	n, k := &d.Node, &d.Kubelet
	n.RootDir = cmp.Or(n.RootDir, defaultRootDir)
	if k.ContainerRuntimeEndpoint == "" { // log collectors read the kubelet's directory, which plain processes of a user may not write to
		k.PodLogsDir = cmp.Or(k.PodLogsDir, filepath.Join(n.RootDir, "logs"))
	}
	k.SetDefaults(Defaults{Cluster: n.Kubeconfig != "", RemoteRuntime: k.ContainerRuntimeEndpoint != ""})
	host, err := os.Hostname()
	n.NodeName = cmp.Or(n.NodeName, strings.ToLower(host))
	if n.NodeName == "" {
		return fmt.Errorf("nodeName: not set, and the host has no name: %w", err)
	}
	if k.PodLogsDir == podspec.DefaultLogRoot {
		n.ContainerLogsDir = cmp.Or(n.ContainerLogsDir, podspec.DefaultLogLinks)
	}
	for _, path := range []*string{&n.RootDir, &k.PodLogsDir, &n.ContainerLogsDir} {
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
	errs := []error{k.Validate()}
	for _, conflict := range []struct {
		present bool
		message string
	}{
		{n.ObjectsDir != "" && cluster, "objectsDir and kubeconfig are both set: config maps and secrets are those of the API server"},
		{n.ManifestSocket != "" && k.StaticPodPath == "", "manifestSocket needs staticPodPath: the directory that the socket serves"},
		{n.KeepObjects && !cluster, "keepObjects needs kubeconfig: other config maps and secrets are on disk already"},
		{k.RotateCertificates && n.Kubeconfig == "", "rotateCertificates needs kubeconfig: the certificate is written there"},
		{n.BootstrapKubeconfig != "" && !k.RotateCertificates, "bootstrapKubeconfig needs rotateCertificates"},
		{k.ServerTLSBootstrap && !cluster, "serverTLSBootstrap needs kubeconfig: the certificate is for the addresses of its Node"},
		{*k.CgroupsPerQOS && k.ContainerRuntimeEndpoint == "", "cgroupsPerQOS needs containerRuntimeEndpoint: a runtime that has cgroups"},
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
	return errors.Join(errs...)
}
