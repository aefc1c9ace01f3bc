// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/redirect"
)

const (
	// maxBody is the maximum number of bytes read from a response body. A longer announced body is not read at all.
	maxBody = 10 << 10
	// maxHeader limits the memory for response headers, in bytes.
	maxHeader = 256 << 10
)

// newClient returns an HTTP/1 client without a proxy. When connCtx ends, all its connections are closed.
func newClient(connCtx context.Context) *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(connCtx, network, address)
			if err == nil {
				context.AfterFunc(connCtx, func() { conn.Close() })
			}
			return conn, err
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
		// The certificate of a container rarely contains the pod IP.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols:       new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t, CheckRedirect: redirect.SameHost}
}

// sendHTTPGet sends the HTTP request of a lifecycle handler.
func (r *Runner) sendHTTPGet(ctx context.Context, call Call, action *corev1.HTTPGetAction) error {
	req, err := newRequest(ctx, call, action)
	if err != nil {
		return err
	}
	// Independent of ctx, so that the error is that of ctx and not of a closed connection.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	client := newClient(alive)
	err = sendRequest(client, req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	// The server speaks only HTTP: repeat the request without its credentials.
	plain := req.Clone(ctx)
	plain.URL.Scheme, plain.URL.User = "http", nil
	plain.Header.Del("Authorization")
	if sendRequest(client, plain) != nil {
		return err // the error of the HTTPS request
	}
	if r.opts.Hooks.HTTPFallback != nil {
		r.opts.Hooks.HTTPFallback(call, fmt.Sprintf(
			"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host))
	}
	return nil
}

// sendRequest sends req and waits for the response and its body. Any response is a success, even with an error status.
func sendRequest(client *http.Client, req *http.Request) error {
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	// After a protocol switch the body is a connection without read deadline.
	if res.StatusCode == http.StatusSwitchingProtocols || res.ContentLength > maxBody {
		return nil
	}
	// A server may end the body only when the work of the hook is done.
	if _, err := io.CopyN(io.Discard, res.Body, maxBody); err != nil && req.Context().Err() != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return nil
}
