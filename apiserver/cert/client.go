// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// ClientOptions configure a [Client], and [Bootstrap].
type ClientOptions struct {
	NodeName string // it must not be empty
	// Kubeconfig is used if it has a valid client certificate, and written if it has none. It must not be empty.
	Kubeconfig string
	// BootstrapKubeconfig has the credentials to begin with, and to go on with after a certificate has expired. Empty: there are none.
	BootstrapKubeconfig string
	Dir                 string                                                               // of certificates; empty: /var/lib/kubelet/pki
	Dial                func(ctx context.Context, network, address string) (net.Conn, error) // to API servers; nil: the network
	Rand                func() float64                                                       // nil means that of math/rand/v2
	Logger              *slog.Logger                                                         // nil discards
	Hooks               Hooks
}

func (o *ClientOptions) checkRequired() error {
	switch {
	case o.NodeName == "":
		return errors.New("ClientOptions.NodeName must not be empty: it is who the certificate is for")
	case o.Kubeconfig == "":
		return errors.New("ClientOptions.Kubeconfig must not be empty: with a bootstrap kubeconfig it is where the other one is written")
	}
	return nil
}

// Client has the client certificate of a node. Make one with [NewClient].
type Client struct {
	rotation rotation

	opts   ClientOptions
	config *rest.Config
	conns  transports
	client *kubeapi.Client
}

// NewClient decides which credentials to begin with, writes the kubeconfig if there is no valid one, and returns a Client that has
// the certificate that is there, if any. It asks nobody for one: that is [Client.Run]. The error names the file that cannot be
// used.
func NewClient(o ClientOptions) (*Client, error) {
	if err := o.checkRequired(); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	c := &Client{opts: o}
	c.rotation.base.setDefaults("client", o.Logger, o.Hooks, o.Rand)
	if err := c.openStore(); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	c.rotation.loadExisting()
	c.rotation.guard.Require("cert.Client", c.rotation.base.log, c.rotation.base.hooks.Failed)
	return c, nil
}

// open reads the kubeconfig to begin with.
func (c *Client) openStore() (err error) {
	if c.rotation.base.store, err = certstore.Open(certstore.Options{Dir: c.opts.Dir, Prefix: certstore.ClientPrefix}); err != nil { // first: the kubeconfig may lead to it
		return err
	}
	k, err := loadInitialKubeconfig(&c.opts, c.rotation.base.store, c.rotation.base.log)
	if err != nil {
		return err
	}
	files := certstore.Options{Dir: c.opts.Dir, Prefix: certstore.ClientPrefix, CertFile: k.REST.CertFile, KeyFile: k.REST.KeyFile}
	if c.rotation.base.store, err = certstore.Open(files); err != nil {
		return err
	}
	c.rotation.signer = certificatesv1.KubeAPIServerClientKubeletSignerName
	c.rotation.pollInterval = certrequest.MaxSleep
	c.rotation.template = func() (certrequest.Template, bool) { return certrequest.ClientTemplate(c.opts.NodeName), true }
	c.rotation.requestClient, c.rotation.findCertificate = c.requestClient, c.findCertificate
	c.rotation.onRotated, c.rotation.closeExpired = c.conns.rotateAll, c.conns.closeExpired
	if c.config, err = kubeconfig.Inline(rest.AnonymousClientConfig(k.REST)); err != nil {
		return err
	}
	c.conns.certificate = c.clientCertificate
	c.config.Dial, c.config.WrapTransport = c.opts.Dial, c.conns.wrapTransport
	c.client, err = kubeapi.New(c.config, kubeapi.Options{Logger: c.rotation.base.log})
	return err
}

// begin returns the kubeconfig to begin with: the one that is there if it is usable, or if there is nothing else; and
// otherwise one that is made of that with the bootstrap credentials, and written.
func loadInitialKubeconfig(o *ClientOptions, store *certstore.Store, log *slog.Logger) (*kubeconfig.File, error) {
	if o.BootstrapKubeconfig == "" {
		return kubeconfig.Load(o.Kubeconfig)
	}
	reason, err := checkKubeconfig(o.Kubeconfig, time.Now())
	if err != nil {
		return nil, err
	}
	if reason == nil {
		return kubeconfig.Load(o.Kubeconfig)
	}
	log.Info("bootstrap credentials are used", "file", o.BootstrapKubeconfig, "why", reason)
	k, err := kubeconfig.Load(o.BootstrapKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("bootstrap %w", err)
	}
	if err := kubeconfig.Write(o.Kubeconfig, k, store.CurrentPath()); err != nil {
		return nil, err
	}
	k.REST = rest.AnonymousClientConfig(k.REST)
	k.REST.CertFile, k.REST.KeyFile = store.CurrentPath(), store.CurrentPath()
	return k, nil
}

// unusable returns why a kubeconfig is not used, or nil if it is. The error is that it cannot be looked at, which is for a
// person to mend: it must not be replaced.
func checkKubeconfig(path string, now time.Time) (reason, err error) {
	if _, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return kubeconfig.CheckUsable(path, now), nil
}

// find looks for a certificate: in the store, then in the kubeconfig. That one goes to the store, and is replaced at once: it
// may be one with more rights than those of a node.
func (c *Client) findCertificate() (pair *tls.Certificate, force bool, err error) {
	pair, err = c.rotation.base.store.Current()
	if err == nil && c.rotation.base.now().Before(pair.Leaf.NotAfter) {
		return pair, false, nil
	}
	k, loadErr := kubeconfig.Load(c.opts.Kubeconfig)
	if loadErr != nil || len(k.REST.CertData) == 0 || len(k.REST.KeyData) == 0 {
		return nil, false, err
	}
	given, pairErr := tls.X509KeyPair(k.REST.CertData, k.REST.KeyData)
	if pairErr != nil {
		return nil, false, fmt.Errorf("kubeconfig %s: client-certificate-data: %w", c.opts.Kubeconfig, pairErr)
	}
	if !c.rotation.base.now().Before(given.Leaf.NotAfter) {
		return nil, false, err
	}
	if _, err := c.rotation.base.store.Update(k.REST.CertData, k.REST.KeyData); err != nil {
		c.rotation.base.log.Error("certificate of the kubeconfig cannot be stored", "error", err)
	}
	return &given, true, nil
}

// credentials returns a client for a request: with the current certificate, else with what the bootstrap kubeconfig has, else
// with what the kubeconfig has beside a certificate. Files are read anew, as somebody may have written them to help.
func (c *Client) requestClient() (*kubeapi.Client, func(), error) {
	pair := c.rotation.currentPair()
	other := pair != nil && isOtherNode(pair.Leaf.Subject.CommonName, c.opts.NodeName) && c.opts.BootstrapKubeconfig != ""
	if pair != nil && !other {
		return c.client, func() {}, nil
	}
	var missing error
	for _, path := range []string{c.opts.BootstrapKubeconfig, c.opts.Kubeconfig} {
		if path == "" {
			continue
		}
		config, err := LoadKubeconfig(path)
		if err == nil && (path == c.opts.BootstrapKubeconfig || hasCredentials(config)) {
			return newRequestClient(config, path, &c.opts)
		}
		missing = errors.Join(missing, err)
	}
	c.rotation.mu.Lock()
	leaf := c.rotation.state.Leaf
	c.rotation.mu.Unlock()
	reason := "there is no certificate"
	if leaf != nil {
		reason = fmt.Sprintf("the certificate of %q has expired at %s", leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil, nil, errors.Join(fmt.Errorf("%s, and there are no credentials to request another one with: write some to %s",
		reason, cmp.Or(c.opts.BootstrapKubeconfig, c.opts.Kubeconfig)), missing)
}

// connect returns a client with the credentials of a kubeconfig.
func newRequestClient(config *rest.Config, path string, o *ClientOptions) (*kubeapi.Client, func(), error) {
	config, err := kubeconfig.Inline(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.Dial = o.Dial
	client, err := kubeapi.New(config, kubeapi.Options{Logger: o.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return client, client.CloseConnections, nil
}

// identifies reports whether a config says who somebody is by other means than a certificate.
func hasCredentials(config *rest.Config) bool {
	return config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.ExecProvider != nil || config.AuthProvider != nil
}

// otherNode reports whether a name is that of another node.
func isOtherNode(commonName, node string) bool {
	name, isNode := strings.CutPrefix(commonName, certrequest.UserPrefix)
	return isNode && name != node
}

// Run requests the certificate, and replaces it in time, until ctx ends. It is called once. Whatever fails is tried again, and never
// ends it.
func (c *Client) Run(ctx context.Context) error { return c.rotation.runLoop(ctx) }

// Config returns the config of a client that has the certificate of the time, from the first on. Until there is one, and after it
// has expired, it has no credentials. Its connections are replaced with the certificate: requests that are under way end in their
// time, watches are cut after 15 s. Each client that is made of it has connections of its own.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// certificate is for a [tls.Config]. It returns an empty certificate if there is no valid one.
func (c *Client) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := c.rotation.currentPair(); pair != nil {
		return pair, nil
	}
	return &tls.Certificate{}, nil
}

// Current returns the certificate, or nil if there is none that is valid.
func (c *Client) Current() *tls.Certificate { return c.rotation.currentPair() }

// Status returns what is known about the certificate.
func (c *Client) Status() Status { return c.rotation.status() }
