// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/internal/verbosity"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// Defaults of the kubelet that package kubeletconfig does not have.
const (
	defaultRootDir  = "/var/lib/kubelet"
	defaultCertDir  = "/var/lib/kubelet/pki"
	defaultEndpoint = "unix:///run/containerd/containerd.sock"
)

// externalProvider is the only value of --cloud-provider that the kubelet accepts beside the empty one.
const externalProvider = "external"

// featureGates is a field of KubeletConfiguration. The flag merges its entries with those of the files.
const featureGates = "featureGates"

// LoadFunc reads a configuration file and a directory of drop-ins. Either name may be empty. kubeletconfig.LoadDir is a LoadFunc.
type LoadFunc func(file, dropIns string) (kubeletconfig.Documents, error)

// Load calls load with the values of --config and --config-dir, and applies the flags to the result. Without these two flags, it does not call load.
// The caller sets the remaining defaults of the result and validates it.
func (l *CommandLine) Load(load LoadFunc) (d kubeletconfig.Documents, err error) {
	if l.Config != "" || l.ConfigDir != "" {
		if d, err = load(l.Config, l.ConfigDir); err != nil {
			return kubeletconfig.Documents{}, err
		}
	}
	return d, l.Apply(&d)
}

// Apply sets the fields of d for which flags are given. It reads the files of --image-credential-provider-config. It also sets the kubelet's defaults
// of certDir, containerRuntimeEndpoint, dockerConfigFiles and rootDir, if missing: package kubeletconfig has other defaults. An error names the flag
// and its value. d keeps no reference to l.
func (l *CommandLine) Apply(d *kubeletconfig.Documents) error {
	errs := []error{l.applyFields(&d.Kubelet)}
	for i := range l.given {
		g := &l.given[i]
		if err := g.applyNode(&d.Node); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.describeFlag(), err))
		}
		if g.Field != "" && g.Field != featureGates && !strings.Contains(g.Field, ".") {
			d.SetBy(g.describeFlag(), g.Field) // for errors of d.Validate
		}
	}
	d.Node.RootDir = cmp.Or(d.Node.RootDir, defaultRootDir)
	d.Node.CertDir = cmp.Or(d.Node.CertDir, defaultCertDir) // not in the root directory, as in the kubelet
	if len(d.Node.DockerConfigFiles) == 0 {
		d.Node.DockerConfigFiles = dockerConfigFiles(d.Node.RootDir)
	}
	d.Kubelet.ContainerRuntimeEndpoint = cmp.Or(d.Kubelet.ContainerRuntimeEndpoint, defaultEndpoint)
	errs = append(errs, l.checkConflicts(&d.Kubelet))
	return errors.Join(errs...)
}

// dockerConfigFiles returns the files in which a kubelet looks for registry credentials. Source: pkg/credentialprovider/config.go.
func dockerConfigFiles(rootDir string) (files []string) {
	home := os.Getenv("HOME")
	add := func(name string, dirs ...string) {
		for _, dir := range dirs {
			if dir != "" {
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
	working, _ := os.Getwd() // the search goes on without it
	dotDocker := ""
	if home != "" {
		dotDocker = filepath.Join(home, ".docker")
	}
	add("config.json", rootDir, working, dotDocker, "/.docker")
	add(".dockercfg", rootDir, working, home, "/")
	return files
}

// applyFields sets the fields of c for which flags are given. It skips flags whose field c does not have; Parse has checked their values.
func (l *CommandLine) applyFields(c *kubeletconfig.Configuration) error {
	flags, err := parseFields(l.collectFields(func(*givenFlag) bool { return true }))
	if err != nil {
		return err
	}
	// The kubelet sets the defaults of the file before it applies flags.
	if c.NodeStatusReportFrequency.Duration == 0 && slices.ContainsFunc(l.given, func(g givenFlag) bool { return g.Field == "nodeStatusUpdateFrequency" }) {
		c.NodeStatusReportFrequency.Duration = cmp.Or(c.NodeStatusUpdateFrequency.Duration, 5*time.Minute)
	}
	for _, g := range l.given {
		if g.Name == "seccomp-default" && g.value.content == false {
			continue // the field or the flag enables it
		}
		if g.Field == featureGates {
			c.FeatureGates = mergeMaps(c.FeatureGates, flags.FeatureGates)
		} else if field := fieldOf(c, g.Field); field.IsValid() {
			field.Set(fieldOf(&flags, g.Field))
		}
	}
	return nil
}

// collectFields returns a KubeletConfiguration object with the fields of all given flags for which match returns true.
func (l *CommandLine) collectFields(match func(*givenFlag) bool) map[string]any {
	object := map[string]any{}
	for i := range l.given {
		if g := &l.given[i]; g.Field != "" && match(g) {
			setField(object, g.Field, g.value.fieldValue())
		}
	}
	return object
}

// checkConflicts validates c together with the given flags. It returns only the errors of flags for which isChecked is true.
func (l *CommandLine) checkConflicts(c *kubeletconfig.Configuration) error {
	if !slices.ContainsFunc(l.given, isChecked) {
		return nil
	}
	others := l.collectFields(func(g *givenFlag) bool { return !fieldOf(c, g.Field).IsValid() })
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	maps.Copy(object, others)
	merged, err := parseFields(object)
	if err != nil {
		return err
	}
	merged.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
	return errors.Join(l.nameFlags(merged.Validate())...)
}

// isChecked reports whether Apply validates flag g together with other fields. It does so for feature gates, whose later errors would not name the
// flag, and for fields that type Configuration does not have.
func isChecked(g givenFlag) bool {
	return g.Field == featureGates || g.Field != "" && !fieldOf(&kubeletconfig.Configuration{}, g.Field).IsValid()
}

// nameFlags returns the errors in validation that begin with the field of a flag for which isChecked is true. It adds the flag to each error.
func (l *CommandLine) nameFlags(validation error) (errs []error) {
	joined, _ := validation.(interface{ Unwrap() []error })
	if joined == nil {
		return nil
	}
	for _, err := range joined.Unwrap() {
		field, _, _ := strings.Cut(err.Error(), ":")
		field, _, _ = strings.Cut(field, "[")
		for _, g := range l.given {
			if isChecked(g) && (g.Field == field || strings.HasPrefix(field, g.Field+".")) {
				errs = append(errs, fmt.Errorf("%s: %w", g.describeFlag(), err))
			}
		}
	}
	return errs
}

// applyNode sets the field of n that belongs to the flag. A flag without such a field changes nothing.
func (g *givenFlag) applyNode(n *kubeletconfig.NodeConfiguration) (err error) {
	text := g.value.String()
	switch g.Name {
	case "bootstrap-kubeconfig":
		n.BootstrapKubeconfig = text
	case "cert-dir":
		n.CertDir = text
	case "cloud-provider":
		n.ExternalCloudProvider = text == externalProvider
	case "hostname-override":
		n.NodeName, err = g.nodeName()
	case "image-credential-provider-bin-dir":
		n.CredentialProviderBinDir = text
	case "image-credential-provider-config":
		n.CredentialProviders, err = readProviders(text)
	case "kubeconfig":
		n.Kubeconfig = text
	case "node-ip":
		n.NodeIPs, err = nodestatus.ParseNodeIPs(text)
	case "node-labels":
		n.NodeLabels = mergeMaps(n.NodeLabels, g.labels())
	case "root-dir":
		n.RootDir = text
	case "v":
		n.LogLevel = verbosity.Level(g.value.content.(uint64))
	}
	return err
}

// mergeMaps returns a new map with the entries of base and over. Entries of over take precedence.
func mergeMaps[V any](base, over map[string]V) map[string]V {
	merged := map[string]V{}
	maps.Copy(merged, base)
	maps.Copy(merged, over)
	return merged
}
