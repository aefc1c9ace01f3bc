// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig loads and writes the kubeconfig files of a node agent, and reports whether their client certificates are
// usable. It sends no requests. Package cert exports the loader.
package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// File is the current context of a kubeconfig file.
type File struct {
	Cluster *clientcmdapi.Cluster
	REST    *rest.Config
}

// Load reads a kubeconfig, as cert.LoadKubeconfig describes.
func Load(path string) (*File, error) {
	if path == "" {
		return nil, errors.New("kubeconfig: the path of the file is empty")
	}
	data, err := certstore.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, WithoutPath(err))
	}
	k, err := parseKubeconfig(data, path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return k, nil
}

// parseKubeconfig decodes the kubeconfig data from the file at path, within the limits of package safeyaml.
func parseKubeconfig(data []byte, path string) (*File, error) {
	if _, err := safeyaml.NewBudget(len(data)).YAML(data); err != nil {
		return nil, fmt.Errorf("it is no kubeconfig: %s", oneLine(err.Error()))
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("it is no kubeconfig: %s", oneLine(err.Error()))
	}
	for _, c := range file.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range file.AuthInfos {
		u.LocationOfOrigin = path
	}
	cluster, user, err := currentContext(file)
	if err != nil {
		return nil, errors.New(oneLine(err.Error()))
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	if err := checkFiles(cluster, user); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, errors.New(oneLine(err.Error()))
	}
	return &File{Cluster: cluster, REST: config}, nil
}

// currentContext returns the cluster and the user of the current context.
func currentContext(file *clientcmdapi.Config) (cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, err error) {
	if file.CurrentContext == "" {
		return nil, nil, errors.New("current-context: required")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, nil, fmt.Errorf("current-context: there is no context %q", file.CurrentContext)
	}
	cluster, user = file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	switch {
	// client-go would silently use an empty cluster or user.
	case cluster == nil:
		return nil, nil, fmt.Errorf("contexts[%s].cluster: there is no cluster %q", file.CurrentContext, context.Cluster)
	case cluster.Server == "":
		return nil, nil, fmt.Errorf("clusters[%s].server: required", context.Cluster)
	case user == nil:
		return nil, nil, fmt.Errorf("contexts[%s].user: there is no user %q", file.CurrentContext, context.AuthInfo)
	}
	return cluster, user, nil
}

// checkFiles returns an error if a certificate, key or token file is not regular or is too large.
func checkFiles(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	for _, f := range []struct {
		field, path string
		inline      []byte
	}{
		{"certificate-authority", cluster.CertificateAuthority, cluster.CertificateAuthorityData},
		{"client-certificate", user.ClientCertificate, user.ClientCertificateData},
		{"client-key", user.ClientKey, user.ClientKeyData},
		{"tokenFile", user.TokenFile, nil},
	} {
		if f.path == "" || len(f.inline) > 0 {
			// client-go uses the data in the kubeconfig itself.
			continue
		}
		if err := checkFile(f.path); err != nil {
			return fmt.Errorf("%s %s: %w", f.field, oneLine(f.path), WithoutPath(err))
		}
	}
	return nil
}

// checkFile returns an error if path is not a regular file of at most certstore.MaxFile bytes.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s", plainfile.ErrIrregular, info.Mode())
	case info.Size() > certstore.MaxFile:
		return fmt.Errorf("%w: it has %d bytes, more than %d", plainfile.ErrTooLarge, info.Size(), certstore.MaxFile)
	}
	return nil
}

// WithoutPath returns the cause of a file error, without the operation and the path. It is for error texts that already
// contain the path.
func WithoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// oneLine returns text in one line, and truncates it after 300 bytes. It is for errors of parsers, which may quote a whole
// file.
func oneLine(text string) string {
	const maxBytes = 300
	line := strings.ReplaceAll(text, "\n", " ")
	if len(line) > maxBytes {
		line = strings.ToValidUTF8(line[:maxBytes], "") + "..."
	}
	return line
}

// Inline returns a copy of config that contains the certificates and keys themselves instead of the paths of their files.
// The token file stays a path, because clients read it again at each use.
func Inline(config *rest.Config) (*rest.Config, error) {
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
			data, err := certstore.ReadFile(*f.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.field, err)
			}
			*f.data = data
		}
		*f.path = ""
	}
	return config, nil
}

// CheckUsable returns nil if the kubeconfig at path has a client certificate that has not expired; otherwise the agent uses
// its bootstrap credentials. The error wraps [fs.ErrNotExist] if the file does not exist. Like the kubelet, it accepts a
// certificate that is not valid yet, because the clock may be behind.
func CheckUsable(path string, now time.Time) error {
	k, err := Load(path)
	if err != nil {
		return err
	}
	if err := checkCertificate(k.REST, now); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

func checkCertificate(config *rest.Config, now time.Time) error {
	config, err := Inline(config)
	if err != nil {
		return err
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return err
	}
	if len(config.CertData) == 0 {
		return errors.New("it has no client certificate")
	}
	chain, err := certstore.ParseChain(config.CertData)
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

// Write writes a kubeconfig to path, for the cluster of from and with the client certificate and key in the PEM file at
// pemPath. It replaces the file, or the target of a symbolic link, atomically and with mode 0600.
func Write(path string, from *File, pemPath string) error {
	cluster := &clientcmdapi.Cluster{
		Server: from.REST.Host, InsecureSkipTLSVerify: from.REST.Insecure, CertificateAuthority: from.REST.CAFile,
		TLSServerName: from.Cluster.TLSServerName, ProxyURL: from.Cluster.ProxyURL,
	}
	if cluster.CertificateAuthority == "" {
		cluster.CertificateAuthorityData = from.REST.CAData
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
