// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// LoadKubeconfig reads a kubeconfig, of the context that is current in it. Paths in it that are relative begin at its directory.
// Files that it names must be there. The error names the file.
func LoadKubeconfig(path string) (*rest.Config, error) {
	k, err := load(path)
	if err != nil {
		return nil, err
	}
	return k.rest, nil
}

// kubeconfig is a kubeconfig that was read.
type kubeconfig struct {
	cluster *clientcmdapi.Cluster
	rest    *rest.Config
}

func load(path string) (*kubeconfig, error) {
	data, err := readFile(path)
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == path {
		err = e.Err // the path is named anyway
	}
	var k *kubeconfig
	if err == nil {
		k, err = parseKubeconfig(data, path)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return k, nil
}

// parseKubeconfig reads the text of a file. Of the files that it names it makes sure that they can be read to the end.
func parseKubeconfig(data []byte, path string) (*kubeconfig, error) {
	if _, err := safeyaml.NewBudget(len(data)).YAML(data); err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, err
	}
	if err := files(config); err != nil {
		return nil, err
	}
	made, err := clientcmd.NewNonInteractiveClientConfig(*config, config.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	k := &kubeconfig{cluster: clientcmdapi.NewCluster(), rest: made}
	if context := config.Contexts[config.CurrentContext]; context != nil && config.Clusters[context.Cluster] != nil {
		k.cluster = config.Clusters[context.Cluster]
	}
	return k, nil
}

// files returns an error if a file of the current context is one that should not be opened.
func files(config *clientcmdapi.Config) error {
	paths := map[string]string{}
	if context := config.Contexts[config.CurrentContext]; context != nil {
		if c := config.Clusters[context.Cluster]; c != nil && len(c.CertificateAuthorityData) == 0 {
			paths["certificate-authority"] = c.CertificateAuthority
		}
		if u := config.AuthInfos[context.AuthInfo]; u != nil {
			paths["tokenFile"] = u.TokenFile
			if len(u.ClientCertificateData) == 0 {
				paths["client-certificate"] = u.ClientCertificate
			}
			if len(u.ClientKeyData) == 0 {
				paths["client-key"] = u.ClientKey
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(paths)) {
		if err := readable(paths[field]); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	return nil
}

// readable returns an error if there is no file of a reasonable size. Empty is no path.
func readable(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: %s", path, info.Mode())
	case info.Size() > maxFile:
		return fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	return nil
}

// inline reads the files that a config names into it, but for that of a token, which is read whenever it is used.
func inline(config *rest.Config) (*rest.Config, error) {
	config = rest.CopyConfig(config)
	for _, f := range []struct {
		field string
		path  *string
		data  *[]byte
	}{
		{"certificate-authority", &config.CAFile, &config.CAData},
		{"client-certificate", &config.CertFile, &config.CertData},
		{"client-key", &config.KeyFile, &config.KeyData},
	} {
		if len(*f.data) == 0 && *f.path != "" {
			data, err := readFile(*f.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.field, err)
			}
			*f.data = data
		}
		*f.path = ""
	}
	return config, nil
}

// Usable returns an error if a kubeconfig has no client certificate that is valid at a time: then an agent has to begin with its
// bootstrap credentials. The error wraps [fs.ErrNotExist] if there is no such file. Whether a certificate is valid already is not
// looked at, as the kubelet does not: a clock may be behind.
func Usable(path string, now time.Time) error {
	k, err := load(path)
	if err != nil {
		return err
	}
	if err := usable(k.rest, now); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

func usable(config *rest.Config, now time.Time) error {
	config, err := inline(config)
	if err != nil {
		return err
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return err
	}
	if len(config.CertData) == 0 {
		return errors.New("it has no client certificate")
	}
	chain, err := parseChain(config.CertData)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("client certificate %q has expired at %s", c.Subject.CommonName, c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig for the same cluster whose client certificate and key are in one file. It is written
// as a whole or not at all, and only its owner can read it. A link to it stays one.
func writeKubeconfig(path string, from *kubeconfig, pemPath string) error {
	cluster := &clientcmdapi.Cluster{
		Server: from.rest.Host, InsecureSkipTLSVerify: from.rest.Insecure, CertificateAuthority: from.rest.CAFile,
		TLSServerName: from.cluster.TLSServerName, ProxyURL: from.cluster.ProxyURL,
	}
	if cluster.CertificateAuthority == "" {
		cluster.CertificateAuthorityData = from.rest.CAData
	}
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: pemPath, ClientKey: pemPath}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	if found, err := filepath.EvalSymlinks(path); err == nil {
		path = found
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	if err := atomicfile.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
