// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Options configures a [Client]. The zero value is ready for production.
type Options struct {
	// UserAgent is the User-Agent header of requests, unless the config has one. Empty: "nodeagent".
	UserAgent string
	// QPS and Burst are the rate limit of all requests except watches. Zero means those of the config, or 50 per second and 100 at once.
	QPS   float32
	Burst int
	// Timeout limits a request, including its wait for the rate limit. Zero means 10 s.
	Timeout time.Duration
	// Certificate returns the client certificate for each new connection. Nil means the certificate of the config.
	Certificate func() (*tls.Certificate, error)
	// Logger gets the log messages of client-go. Nil discards them.
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultQPS     = 50
	DefaultBurst   = 100
	DefaultTimeout = 10 * time.Second
)

// Client sends requests to one API server. It is safe for concurrent use.
type Client struct {
	config            *rest.Config // a copy, without the parts that this package implements itself
	options           Options
	log               logr.Logger
	closeAllOnTimeout bool // a request that times out closes all connections, not only silent connections
	maxList           int64

	codec  runtime.NegotiatedSerializer
	params runtime.ParameterCodec
	http   *http.Client
	dialer *dialer
	rest   map[schema.GroupVersion]*rest.RESTClient
}

// New returns a client for the API server in config, which it copies. It sends no request. The error names the invalid field
// of config or opts.
func New(config *rest.Config, opts Options) (*Client, error) {
	if config == nil {
		return nil, errors.New("kubeapi: config is nil: want the rest.Config of an API server")
	}
	if config.Host == "" {
		return nil, errors.New("kubeapi: config.Host is empty: want the address of an API server")
	}
	if opts.QPS < 0 || opts.Burst < 0 || opts.Timeout < 0 {
		return nil, fmt.Errorf("kubeapi: options QPS %v, Burst %d, Timeout %s: must not be negative", opts.QPS, opts.Burst, opts.Timeout)
	}
	opts.UserAgent = orElse(opts.UserAgent, "nodeagent")
	opts.QPS, opts.Burst, opts.Timeout = orElse(opts.QPS, orElse(max(config.QPS, 0), DefaultQPS)), orElse(opts.Burst, orElse(max(config.Burst, 0), DefaultBurst)), orElse(opts.Timeout, DefaultTimeout)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	copied := rest.CopyConfig(config)
	copied.UserAgent = orElse(copied.UserAgent, opts.UserAgent)
	copied.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(opts.QPS, opts.Burst)
	copied.WarningHandlerWithContext, copied.WarningHandler = nil, rest.NoWarnings{}
	copied.Timeout = 0 // each request has its own deadline
	copied.ContentType = runtime.ContentTypeProtobuf
	copied.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return buildClient(copied, opts, false)
}

// HeartbeatClient returns a client of the same server for requests that must not wait for other requests. It has its own
// connections and no rate limit. After a timeout it reconnects.
func (c *Client) HeartbeatClient() (*Client, error) {
	config := rest.CopyConfig(c.config)
	config.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	return buildClient(config, c.options, true)
}

// WithBudget returns a client that shares the connections of c, but has its own rate limit: qps requests per second, in
// bursts of at most burst requests. A negative qps means no limit.
func (c *Client) WithBudget(qps float32, burst int) (*Client, error) {
	shared := *c
	shared.config = rest.CopyConfig(c.config)
	shared.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	if qps < 0 {
		shared.config.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	}
	shared.rest = map[schema.GroupVersion]*rest.RESTClient{}
	for gv := range c.rest {
		if err := shared.addGroup(gv); err != nil {
			return nil, fmt.Errorf("kubeapi: group %s: %w", gv, err)
		}
	}
	return &shared, nil
}

// CloseConnections closes all connections, including the connections of watches. The next request opens a connection with
// the current certificate. If the config sets a Transport, only idle connections are closed.
func (c *Client) CloseConnections() {
	c.dialer.closeAll()
	closeIdle(c.http.Transport)
}

// buildClient creates a Client with its transport and REST clients. If closeAll is true, a request that times out closes all
// connections of the client.
func buildClient(config *rest.Config, opts Options, closeAll bool) (*Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("kubeapi: %w", err)
	}
	c := &Client{
		config: config, options: opts, log: logr.FromSlogHandler(opts.Logger.Handler()), closeAllOnTimeout: closeAll, maxList: MaxList,
		codec:  serializer.NewCodecFactory(scheme).WithoutConversion(),
		params: runtime.NewParameterCodec(scheme),
		dialer: newDialer(config.Dial),
		rest:   map[schema.GroupVersion]*rest.RESTClient{},
	}
	tripper, err := c.buildTransport()
	if err != nil {
		return nil, fmt.Errorf("kubeapi: connect to %s: %w", config.Host, err)
	}
	c.http = &http.Client{Transport: tripper}
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		if err := c.addGroup(gv); err != nil {
			return nil, fmt.Errorf("kubeapi: group %s: %w", gv, err)
		}
	}
	return c, nil
}

// addGroup creates the REST client of an API group.
func (c *Client) addGroup(group schema.GroupVersion) error {
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.NegotiatedSerializer = &group, c.codec
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return err
	}
	c.rest[group] = client
	return nil
}

// buildTransport returns an HTTP transport with its own connections. It rereads token and certificate files, because they
// may be rotated.
func (c *Client) buildTransport() (http.RoundTripper, error) {
	config := rest.CopyConfig(c.config)
	var wrap []transport.WrapperFunc
	if path := config.BearerTokenFile; path != "" {
		config.BearerTokenFile, config.BearerToken = "", ""
		wrap = append(wrap, func(next http.RoundTripper) http.RoundTripper { return &tokenFile{path: path, next: next} })
	}
	certificate := c.options.Certificate
	if certificate == nil && config.CertFile != "" && len(config.CertData) == 0 {
		certificate = fileCertificate(config.CertFile, orElse(config.KeyFile, config.CertFile))
	}
	if config.Transport == nil {
		config.Dial = c.dialer.DialContext
	}
	if certificate != nil {
		config.CertFile, config.KeyFile, config.CertData, config.KeyData = "", "", nil, nil
	}
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		tc.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: certificate}
	}
	wrap = append(wrap, func(next http.RoundTripper) http.RoundTripper { return limitTransport{next} })
	for _, w := range wrap {
		tc.Wrap(w)
	}
	return transport.New(tc)
}

// doWithRetry calls request, and repeats it after each error with Retry-After, at most for Options.Timeout.
func (c *Client) doWithRetry(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(logr.NewContext(ctx, c.log), c.options.Timeout)
	defer cancel()
	for {
		begin := time.Now()
		err := request(ctx)
		if err == nil {
			return nil
		}
		c.closeDeadConns(ctx, err, begin)
		wait, asked := RetryAfter(err)
		// Returns at once if the wait would exceed the timeout.
		if deadline, _ := ctx.Deadline(); !asked || time.Until(deadline) <= wait {
			return err
		}
		if sleep.For(ctx, max(wait, minRetry)) != nil {
			return err
		}
	}
}

// minRetry is the shortest wait for a server that sends a Retry-After of zero.
const minRetry = 100 * time.Millisecond

// closeDeadConns closes the connections that have received no data since begin, the start of a request that failed with err. It
// does nothing unless the request has timed out. If c.closeAllOnTimeout is true, it closes all connections.
func (c *Client) closeDeadConns(ctx context.Context, err error, begin time.Time) {
	switch {
	case !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // the server responded, or the connection is closed
	case c.closeAllOnTimeout:
		c.CloseConnections()
	default:
		c.dialer.closeSilent(begin)
	}
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
