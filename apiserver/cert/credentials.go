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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// LoadKubeconfig reads a kubeconfig and returns the REST config of its current context. Files that it names must be regular
// files of at most 1 MiB.
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

// CheckCredentials returns an error if a file of the config is unreadable, or if its client certificate is expired, not
// valid yet or for another node. It sends no request, and does not check tokens and credential plugins.
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
// or the credentials. The result wraps err. An err with another cause is returned unchanged.
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

// credentialsOf returns the name of the config field with the credentials, and the path of their file, for error texts.
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

// sourceOf returns a text for errors such as "client-key PATH", or "client-key-data" for data in the kubeconfig itself.
func sourceOf(file string, inline bool, field string) string {
	switch {
	case inline:
		return field + "-data"
	case file != "":
		return field + " " + file
	}
	return field + " (of the system)"
}

// readField returns the data or else the content of the file. If neither is set, where, the field's name for errors, is
// empty.
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
