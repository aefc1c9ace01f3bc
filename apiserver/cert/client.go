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

// ClientOptions configures a [Client] and [Bootstrap]. NodeName and Kubeconfig are required.
type ClientOptions struct {
	NodeName string // required
	// Kubeconfig is the path of the kubeconfig. If it has no valid client certificate, it is written from
	// BootstrapKubeconfig. Required.
	Kubeconfig string
	// BootstrapKubeconfig is the path of a kubeconfig with credentials for the first request, and for requests after a
	// certificate has expired. Empty: none.
	BootstrapKubeconfig string
	Dir                 string                                                               // of certificates; empty: /var/lib/kubelet/pki
	Dial                func(ctx context.Context, network, address string) (net.Conn, error) // connects to API servers; nil: the network
	QPS                 float32                                                              // requests per second of each client of the config; zero: the client's default
	Burst               int                                                                  // requests at once; zero: the client's default
	Rand                func() float64                                                       // jitter in [0,1); nil: math/rand/v2
	Logger              *slog.Logger                                                         // nil discards
	Hooks               Hooks
}

func (o *ClientOptions) checkRequired() error {
	switch {
	case o.NodeName == "":
		return errors.New("ClientOptions.NodeName must not be empty: it is the node in the certificate")
	case o.Kubeconfig == "":
		return errors.New("ClientOptions.Kubeconfig must not be empty: it is the kubeconfig to read, and to write after a bootstrap")
	}
	return nil
}

// Client maintains the client certificate of a node: it requests, stores and rotates the certificate. Create one with
// [NewClient].
type Client struct {
	rotation rotation

	opts   ClientOptions
	config *rest.Config
	conns  transports
	client *kubeapi.Client
}

// NewClient loads the stored client certificate of the node, if there is one. It sends no request: [Client.Run] requests a
// certificate. An unusable kubeconfig is replaced by one for the cluster in the bootstrap kubeconfig.
func NewClient(opts ClientOptions) (*Client, error) {
	if err := opts.checkRequired(); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	c := &Client{opts: opts}
	c.rotation.base.setDefaults("client", opts.Logger, opts.Hooks, opts.Rand)
	if err := c.openStore(); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	c.rotation.loadExisting()
	c.rotation.guard.Require("cert.Client", c.rotation.base.log, c.rotation.base.hooks.Failed)
	return c, nil
}

// openStore opens the certificate store and loads the kubeconfig. It configures the certificate rotation and the REST config
// with the loaded files.
func (c *Client) openStore() (err error) {
	if c.rotation.base.store, err = certstore.Open(certstore.Options{Dir: c.opts.Dir, Prefix: certstore.ClientPrefix}); err != nil { // first, because the kubeconfig may link to a file of the store
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
	c.config.QPS, c.config.Burst = c.opts.QPS, c.opts.Burst
	c.config.Dial, c.config.WrapTransport = c.opts.Dial, c.conns.wrapTransport
	c.client, err = kubeapi.New(c.config, kubeapi.Options{Logger: c.rotation.base.log})
	return err
}

// loadInitialKubeconfig returns the kubeconfig if it is usable. Otherwise it writes one for the cluster in the bootstrap
// kubeconfig.
func loadInitialKubeconfig(opts *ClientOptions, store *certstore.Store, log *slog.Logger) (*kubeconfig.File, error) {
	if opts.BootstrapKubeconfig == "" {
		return kubeconfig.Load(opts.Kubeconfig)
	}
	reason, err := checkKubeconfig(opts.Kubeconfig, time.Now())
	if err != nil {
		return nil, err
	}
	if reason == nil {
		return kubeconfig.Load(opts.Kubeconfig)
	}
	log.Info("bootstrap credentials are used", "file", opts.BootstrapKubeconfig, "why", reason)
	k, err := kubeconfig.Load(opts.BootstrapKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("bootstrap %w", err)
	}
	if err := kubeconfig.Write(opts.Kubeconfig, k, store.CurrentPath()); err != nil {
		return nil, err
	}
	k.REST = rest.AnonymousClientConfig(k.REST)
	k.REST.CertFile, k.REST.KeyFile = store.CurrentPath(), store.CurrentPath()
	return k, nil
}

// checkKubeconfig returns why the kubeconfig is unusable, or nil if it is usable.
func checkKubeconfig(path string, now time.Time) (unusable, err error) {
	if _, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		// an unreadable file must not be overwritten: an administrator must repair it
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return kubeconfig.CheckUsable(path, now), nil
}

// findCertificate returns the valid certificate in the store or else in the kubeconfig, or nil. Run must replace that of the
// kubeconfig at once.
func (c *Client) findCertificate() (pair *tls.Certificate, replace bool, err error) {
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
	return &given, true, nil // it may have more rights than a node needs
}

// requestClient returns a client for certificate requests, and a function that closes it. It uses the current certificate or
// else the kubeconfigs.
func (c *Client) requestClient() (client *kubeapi.Client, closeClient func(), err error) {
	pair := c.rotation.currentPair()
	other := pair != nil && isOtherNode(pair.Leaf.Subject.CommonName, c.opts.NodeName) && c.opts.BootstrapKubeconfig != ""
	if pair != nil && !other {
		return c.client, func() {}, nil
	}
	var missing error
	// read at each call, because an administrator may have repaired the files
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
	return nil, nil, errors.Join(fmt.Errorf("%s, and there are no credentials to request one: write some to %s",
		reason, cmp.Or(c.opts.BootstrapKubeconfig, c.opts.Kubeconfig)), missing)
}

// newRequestClient returns a client for certificate requests with the credentials in config, and a function that closes its
// connections. Errors name path, the kubeconfig file.
func newRequestClient(config *rest.Config, path string, opts *ClientOptions) (client *kubeapi.Client, closeClient func(), err error) {
	config, err = kubeconfig.Inline(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.Dial = opts.Dial
	client, err = kubeapi.New(config, kubeapi.Options{Logger: opts.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return client, client.CloseConnections, nil
}

// hasCredentials reports whether config contains credentials other than a client certificate, such as a token.
func hasCredentials(config *rest.Config) bool {
	return config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.ExecProvider != nil || config.AuthProvider != nil
}

// isOtherNode reports whether commonName is the user name of a node other than the given node.
func isOtherNode(commonName, node string) bool {
	name, isNode := strings.CutPrefix(commonName, certrequest.UserPrefix)
	return isNode && name != node
}

// Run requests the certificate and rotates it until ctx ends, and then returns nil. It retries after each failure. A second
// call of Run returns an error.
func (c *Client) Run(ctx context.Context) error { return c.rotation.runLoop(ctx) }

// Config returns a REST config whose clients present the current certificate. Without a valid one, as before the bootstrap, requests wait for it until
// their contexts end, and then return an error that wraps kubeapi.ErrNoCredentials. After a rotation, requests use new connections; requests in flight may complete, and watches are closed after 15 s. Each client has its own
// connections.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// clientCertificate returns the current certificate. Without a valid certificate it returns an empty [tls.Certificate]. It
// is the GetClientCertificate function of a [tls.Config].
func (c *Client) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := c.rotation.currentPair(); pair != nil {
		return pair, nil
	}
	return &tls.Certificate{}, nil
}

// Current returns the current certificate, or nil if there is no valid certificate.
func (c *Client) Current() *tls.Certificate { return c.rotation.currentPair() }

// Status returns the state of the certificate and its requests.
func (c *Client) Status() Status { return c.rotation.status() }
