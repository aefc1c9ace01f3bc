// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Access creates clients and kubeconfigs for any user of an API server. It holds the authority that signs client certificates.
type Access struct {
	url string
	ca  *authority
	dir string // directory of written kubeconfigs

	mu    sync.Mutex // guards the fields below
	admin *Client
	files int // number of kubeconfigs
}

// URL returns the address of the API server: https://HOST:PORT.
func (a *Access) URL() string { return a.url }

// CA returns the PEM-encoded certificate of the certificate authority that signed the API server's certificate.
func (a *Access) CA() []byte { return a.ca.pem }

// Admin returns the client of a user in the group system:masters, who may send any request. Each call returns the same
// client.
func (a *Access) Admin() *Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admin
}

// Client returns a client with a certificate for this user and these groups. An agent has the user system:node:NAME and the
// group system:nodes.
func (a *Access) Client(user string, groups ...string) (*Client, error) {
	cert, err := a.ClientCertificate(user, groups...)
	if err != nil {
		return nil, err
	}
	return newClient(a.url, &tls.Config{RootCAs: a.RootPool(), Certificates: []tls.Certificate{cert}}, ""), nil
}

// ClientCertificate returns a certificate for this user and these groups, for tests with their own API client.
func (a *Access) ClientCertificate(user string, groups ...string) (tls.Certificate, error) {
	issued, err := a.ca.clientPair(user, groups...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(issued.cert, issued.key)
}

// ServerCertificate returns a certificate for a server on the loopback interface. It is signed by the certificate authority
// of the API server.
func (a *Access) ServerCertificate(name string) (tls.Certificate, error) {
	issued, err := a.ca.serverPair(name)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(issued.cert, issued.key)
}

// TokenClient returns a client that authenticates with this bearer token.
func (a *Access) TokenClient(token string) *Client {
	return newClient(a.url, &tls.Config{RootCAs: a.RootPool()}, token)
}

// Kubeconfig writes a kubeconfig for this user and these groups and returns its path. The certificates and the key are in
// separate files. All files are in the directory of the control plane.
func (a *Access) Kubeconfig(user string, groups ...string) (path string, err error) {
	return a.KubeconfigAt(a.url, user, groups...)
}

// KubeconfigAt writes a kubeconfig like [Access.Kubeconfig], but with the given URL of the server. This can be a proxy with
// a certificate from [Access.ServerCertificate].
func (a *Access) KubeconfigAt(url, user string, groups ...string) (path string, err error) {
	base := a.newBase()
	return base + ".conf", a.writeConfig(base, url, user, groups...)
}

// ExpiredKubeconfig writes a kubeconfig like [Access.Kubeconfig], but with a client certificate that expired one hour ago.
func (a *Access) ExpiredKubeconfig(user string, groups ...string) (path string, err error) {
	issued, err := a.ca.clientPairUntil(time.Now().Add(-time.Hour), user, groups...)
	if err != nil {
		return "", err
	}
	base := a.newBase()
	return base + ".conf", a.writePair(base, a.url, issued)
}

// newBase returns a new path prefix for the kubeconfig, the certificate and the key of one user.
func (a *Access) newBase() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files++
	return filepath.Join(a.dir, fmt.Sprintf("client%d", a.files))
}

// writeConfig writes a kubeconfig for the server at url with a new certificate for the user. All file paths start with base.
func (a *Access) writeConfig(base, url, user string, groups ...string) error {
	issued, err := a.ca.clientPair(user, groups...)
	if err != nil {
		return err
	}
	return a.writePair(base, url, issued)
}

// writePair writes a client certificate, its key and a kubeconfig for the server at url. All file paths start with base.
func (a *Access) writePair(base, url string, issued keyPair) error {
	files := map[string][]byte{
		base + "-ca.crt": a.ca.pem, base + ".crt": issued.cert, base + ".key": issued.key,
		base + ".conf": fmt.Appendf(nil, kubeconfig, base+"-ca.crt", url, base+".crt", base+".key"),
	}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {certificate-authority: %q, server: %q}}]
users: [{name: user, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`

// RootPool returns a pool with the certificate of the certificate authority that signed the API server's certificate.
func (a *Access) RootPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.ca.cert)
	return pool
}

// openAdmin creates the client of [Access.Admin].
func (a *Access) openAdmin() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admin, err = a.Client("nodeagent-test-admin", "system:masters")
	return err
}

// writeFiles writes the certificate to the file name.crt and the key to the file name.key in dir. It returns the paths of
// the two files.
func (p keyPair) writeFiles(dir, name string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(cert, p.cert, 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(key, p.key, 0o600)
}

// loopbackURL returns the URL of a server on loopback.
func loopbackURL(scheme string, port int) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
}

// buildFlags returns the command-line flags --NAME=VALUE for pairs of a name and a value.
func buildFlags(pairs ...string) []string {
	var args []string
	for i := 0; i+1 < len(pairs); i += 2 {
		args = append(args, "--"+pairs[i]+"="+pairs[i+1])
	}
	return args
}
