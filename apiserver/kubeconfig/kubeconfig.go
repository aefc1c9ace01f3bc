// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig reads the kubeconfig of a node agent, and says in one line which file and which field of it is wrong. It makes no
// credentials: that is package cert's.
//
// # Model
//
// [Load] reads a file, [Check] looks at the credentials in it, and [Explain] turns what the API server and TLS say about them into the field
// that has to be changed:
//
//	config, err := kubeconfig.Load(path)
//	err = kubeconfig.Check(config, nodeName, time.Now())
//	...
//	err = kubeconfig.Explain(config, err) // of a request
//
// # Concurrency
//
// All functions may be called from any goroutine.
//
// # Errors
//
// An error names the file and the field. None has a key or a token in it.
//
// # When not to use it
//
// In a pod: rest.InClusterConfig has what is needed there.
//
// Test kit: none is needed.
package kubeconfig

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// maxFile bounds the files that are read.
const maxFile = 1 << 20

// What the API server knows agents by.
const (
	userPrefix = "system:node:"
	userGroup  = "system:nodes"
)

// Load reads a kubeconfig. Paths in it are relative to its directory. Certificates and keys in files are not read: see [Check].
func Load(path string) (*rest.Config, error) {
	if path == "" {
		return nil, errors.New("kubeconfig: the path of the file is empty")
	}
	data, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %w", err)
	}
	if _, err := safeyaml.NewBudget(len(data)).YAML(data); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: it is no kubeconfig: %s", path, firstLine(err))
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: it is no kubeconfig: %s", path, firstLine(err))
	}
	for _, c := range file.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range file.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := complete(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	// What it validates names clusters and users, and files where those cannot be opened.
	config, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %s", path, firstLine(err))
	}
	return config, nil
}

// complete checks what client-go would fill in with a guess.
func complete(file *api.Config) error {
	if file.CurrentContext == "" {
		return errors.New("current-context: required")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return fmt.Errorf("current-context: there is no context %q", file.CurrentContext)
	}
	cluster := file.Clusters[context.Cluster]
	switch {
	case cluster == nil:
		return fmt.Errorf("contexts[%s].cluster: there is no cluster %q", file.CurrentContext, context.Cluster)
	case cluster.Server == "":
		return fmt.Errorf("clusters[%s].server: required", context.Cluster)
	case file.AuthInfos[context.AuthInfo] == nil:
		return fmt.Errorf("contexts[%s].user: there is no user %q", file.CurrentContext, context.AuthInfo)
	}
	return nil
}

// Check returns why the credentials of a configuration cannot be those of a node, as far as can be said without asking the API server:
// files that are unreadable, a certificate that has expired, or is that of another node. Tokens and plugins are not looked at.
func Check(config *rest.Config, node string, now time.Time) error {
	if ca, where, err := material(config.CAData, config.CAFile, "certificate-authority"); err != nil {
		return err
	} else if where != "" && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s: it has no certificate as PEM", where)
	}
	data, where, err := material(config.CertData, config.CertFile, "client-certificate")
	if err != nil || where == "" {
		return err
	}
	if _, _, err := material(config.KeyData, config.KeyFile, "client-key"); err != nil {
		return err
	}
	cert, err := first(data)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%s: it has expired at %s", where, cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%s: it is not valid before %s: is the clock right?", where, cert.NotBefore.UTC().Format(time.RFC3339))
	}
	of, isNode := strings.CutPrefix(cert.Subject.CommonName, userPrefix)
	switch {
	case isNode && of != node:
		return fmt.Errorf("%s: it is that of node %q, and this is node %q", where, of, node)
	case isNode && !slices.Contains(cert.Subject.Organization, userGroup):
		return fmt.Errorf("%s: its organization must have %s", where, userGroup)
	}
	return nil
}

// Explain returns the error of a request with the field of the configuration that has to be changed, where it is because of one. Other errors,
// and nil, stay as they are.
func Explain(config *rest.Config, err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	ca, credentials := field(config.CAFile, len(config.CAData) > 0, "certificate-authority"), credentialsOf(config)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: it has not signed the certificate of %s: %w", ca, config.Host, err)
	case errors.As(err, &name):
		return fmt.Errorf("server %s: its certificate is for other names: %w", config.Host, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("server %s: its certificate is invalid, or the clock is wrong: %w", config.Host, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %s does not take it, or it has expired: %w", credentials, config.Host, err)
	}
	return err
}

// credentialsOf names the field that says who an agent is.
func credentialsOf(config *rest.Config) string {
	switch {
	case config.CertFile != "" || len(config.CertData) > 0:
		return field(config.CertFile, len(config.CertData) > 0, "client-certificate")
	case config.BearerTokenFile != "":
		return "tokenFile " + config.BearerTokenFile
	case config.BearerToken != "":
		return "token"
	case config.ExecProvider != nil:
		return "exec " + config.ExecProvider.Command
	}
	return "user: there are no credentials"
}

// field names where something is.
func field(file string, inline bool, name string) string {
	switch {
	case inline:
		return name + "-data"
	case file != "":
		return name + " " + file
	}
	return name + " (of the system)"
}

// material returns what is in a field, or in the file that it names, and what to call that; empty: there is neither.
func material(data []byte, file, name string) (content []byte, where string, err error) {
	if len(data) == 0 && file == "" {
		return nil, "", nil
	}
	where = field(file, len(data) > 0, name)
	if len(data) > 0 {
		return data, where, nil
	}
	if content, err = read(file); err != nil {
		return nil, where, fmt.Errorf("%s %w", name, err)
	}
	return content, where, nil
}

// first returns the first certificate of a PEM text.
func first(data []byte) (*x509.Certificate, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("it has no certificate as PEM")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// read reads a file of limited size. Links are followed: current certificates are behind one. The error begins with the path.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, plain(path, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is no file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: it is larger than %d bytes", path, maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, plain(path, err)
	}
	return data, nil
}

// plain says the path first, and once.
func plain(path string, err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// firstLine is one line of an error, which does not quote a file at length.
func firstLine(err error) string {
	const most = 300
	line := strings.ReplaceAll(err.Error(), "\n", " ")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "..."
	}
	return line
}
