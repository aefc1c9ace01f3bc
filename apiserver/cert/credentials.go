// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// LoadKubeconfig reads the kubeconfig at path, and returns the REST config of its current context. Relative paths in the
// kubeconfig are relative to its directory. Files that it names must be regular files of at most 1 MiB; [CheckCredentials]
// examines their content.
//
// The error is one line that names the file and the field, without keys or tokens. It wraps [fs.ErrNotExist] if the file
// does not exist.
func LoadKubeconfig(path string) (*rest.Config, error) {
	k, err := kubeconfig.Load(path)
	if err != nil {
		return nil, err
	}
	return k.REST, nil
}

// CheckCredentials returns an error if the API server cannot accept the credentials in config for this node. It detects an
// unreadable file, a client certificate that has expired or is not valid yet, and a certificate of another node. The error
// names the field and the file. CheckCredentials sends no request, and does not check tokens and credential plugins.
func CheckCredentials(config *rest.Config, node string, now time.Time) error {
	if ca, where, err := readField(config.CAData, config.CAFile, "certificate-authority"); err != nil {
		return err
	} else if where != "" && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s: it has no certificate as PEM", where)
	}
	data, where, err := readField(config.CertData, config.CertFile, "client-certificate")
	if err != nil || where == "" {
		return err
	}
	if _, _, err := readField(config.KeyData, config.KeyFile, "client-key"); err != nil {
		return err
	}
	cert, err := firstCertificate(data)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%s: it has expired at %s", where, cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%s: it is not valid before %s: is the clock right?", where, cert.NotBefore.UTC().Format(time.RFC3339))
	}
	of, isNode := strings.CutPrefix(cert.Subject.CommonName, certrequest.UserPrefix)
	switch {
	case isNode && of != node:
		return fmt.Errorf("%s: it is that of node %q, and this is node %q", where, of, node)
	case isNode && !slices.Contains(cert.Subject.Organization, certrequest.NodesGroup):
		return fmt.Errorf("%s: its organization must have %s", where, certrequest.NodesGroup)
	}
	return nil
}

// ExplainError adds to the error of a request which field of config must be corrected: the certificate authority, the server
// or the credentials. The result wraps err. If the cause is not a field, or if err is nil, ExplainError returns err
// unchanged.
func ExplainError(config *rest.Config, err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	ca, credentials := sourceOf(config.CAFile, len(config.CAData) > 0, "certificate-authority"), credentialsOf(config)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: it has not signed the certificate of %s: %w", ca, config.Host, err)
	case errors.As(err, &name):
		return fmt.Errorf("server %s: its certificate is for other names: %w", config.Host, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("server %s: its certificate is invalid, or the clock is wrong: %w", config.Host, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %s does not accept it, or it has expired: %w", credentials, config.Host, err)
	}
	return err
}

// credentialsOf returns a text for errors that names the config field with the credentials. If the credentials are in a
// file, the text also contains its path.
func credentialsOf(config *rest.Config) string {
	switch {
	case config.CertFile != "" || len(config.CertData) > 0:
		return sourceOf(config.CertFile, len(config.CertData) > 0, "client-certificate")
	case config.BearerTokenFile != "":
		return "tokenFile " + config.BearerTokenFile
	case config.BearerToken != "":
		return "token"
	case config.ExecProvider != nil:
		return "exec " + config.ExecProvider.Command
	}
	return "user: there are no credentials"
}

// sourceOf returns a text for errors that names the source of a certificate or key. name is its field in the kubeconfig,
// for example "client-key". The text is "client-key-data" for inline data, and "client-key PATH" for a file.
func sourceOf(file string, inline bool, name string) string {
	switch {
	case inline:
		return name + "-data"
	case file != "":
		return name + " " + file
	}
	return name + " (of the system)"
}

// readField returns the content of a config field: data if set, otherwise the content of the file. where is the name of the
// field for error texts; it is empty if the field is not set.
func readField(data []byte, file, name string) (content []byte, where string, err error) {
	if len(data) == 0 && file == "" {
		return nil, "", nil
	}
	where = sourceOf(file, len(data) > 0, name)
	if len(data) > 0 {
		return data, where, nil
	}
	if content, err = certstore.ReadFile(file); err != nil {
		return nil, where, fmt.Errorf("%s: %w", where, kubeconfig.WithoutPath(err))
	}
	return content, where, nil
}

// firstCertificate returns the first certificate in PEM data.
func firstCertificate(data []byte) (*x509.Certificate, error) {
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
