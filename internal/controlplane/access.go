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

// Access is how to talk to an API server as any user: the test has the authority that signs its clients' certificates.
type Access struct {
	url string
	ca  *authority
	dir string // of kubeconfigs

	mu    sync.Mutex // guards what follows
	admin *Client
	files int // number of kubeconfigs
}

// URL returns the address of the API server: https://HOST:PORT.
func (a *Access) URL() string { return a.url }

// CA returns the certificate of the authority that the API server's own is signed by, as PEM.
func (a *Access) CA() []byte { return a.ca.pem }

// Admin returns a client that may do anything: it is in the group system:masters. It is always the same.
func (a *Access) Admin() *Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admin
}

// Client returns a client with a certificate of that user in these groups. That of an agent is system:node:NAME in
// system:nodes.
func (a *Access) Client(user string, groups ...string) (*Client, error) {
	cert, err := a.ClientCertificate(user, groups...)
	if err != nil {
		return nil, err
	}
	return newClient(a.url, &tls.Config{RootCAs: a.RootPool(), Certificates: []tls.Certificate{cert}}, ""), nil
}

// ClientCertificate returns a certificate of that user in these groups, for whoever speaks to the API server itself.
func (a *Access) ClientCertificate(user string, groups ...string) (tls.Certificate, error) {
	issued, err := a.ca.clientPair(user, groups...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(issued.cert, issued.key)
}

// ServerCertificate returns a certificate for a server on loopback, which those trust who trust the API server.
func (a *Access) ServerCertificate(name string) (tls.Certificate, error) {
	issued, err := a.ca.serverPair(name)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(issued.cert, issued.key)
}

// TokenClient returns a client that says who it is by a token.
func (a *Access) TokenClient(token string) *Client {
	return newClient(a.url, &tls.Config{RootCAs: a.RootPool()}, token)
}

// Kubeconfig writes a kubeconfig for a user in these groups, with files of its own for certificates and key, and returns its
// path. It is where the files of the control plane are, and goes with them.
func (a *Access) Kubeconfig(user string, groups ...string) (string, error) {
	return a.KubeconfigAt(a.url, user, groups...)
}

// KubeconfigAt writes one for a server at another address that has a certificate of [Access.ServerCertificate], such as a proxy.
func (a *Access) KubeconfigAt(url, user string, groups ...string) (string, error) {
	base := a.newBase()
	return base + ".conf", a.writeConfig(base, url, user, groups...)
}

// ExpiredKubeconfig writes one whose certificate was valid until an hour ago.
func (a *Access) ExpiredKubeconfig(user string, groups ...string) (string, error) {
	issued, err := a.ca.clientPairUntil(time.Now().Add(-time.Hour), user, groups...)
	if err != nil {
		return "", err
	}
	base := a.newBase()
	return base + ".conf", a.writePair(base, a.url, issued)
}

// newBase returns what the paths of a new kubeconfig begin with.
func (a *Access) newBase() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files++
	return filepath.Join(a.dir, fmt.Sprintf("client%d", a.files))
}

// writeConfig writes a kubeconfig, certificate and key, whose paths begin with base.
func (a *Access) writeConfig(base, url, user string, groups ...string) error {
	issued, err := a.ca.clientPair(user, groups...)
	if err != nil {
		return err
	}
	return a.writePair(base, url, issued)
}

// writePair does so for a certificate that there is.
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

// RootPool returns what the certificate of the API server is signed by.
func (a *Access) RootPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.ca.cert)
	return pool
}

// open makes the client that may do anything.
func (a *Access) openAdmin() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admin, err = a.Client("nodeagent-test-admin", "system:masters")
	return err
}

// write puts a certificate and its key into files, and returns the paths.
func (p keyPair) writeFiles(dir, name string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(cert, p.cert, 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(key, p.key, 0o600)
}

// address returns the address of a server on loopback.
func loopbackURL(scheme string, port int) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
}

// flags makes the arguments of a program. A value follows its name: all of these programs take that.
func buildFlags(pairs ...string) []string {
	var args []string
	for i := 0; i+1 < len(pairs); i += 2 {
		args = append(args, "--"+pairs[i]+"="+pairs[i+1])
	}
	return args
}
