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
	// maxBody is how much of an answer is waited for, and how long an announced body may be to be waited for at all.
	maxBody = 10 << 10
	// maxHeader bounds what the header of an answer can make the agent keep in memory.
	maxHeader = 256 << 10
)

// newClient returns a client for HTTP/1 that goes straight to the container: no proxy, and no look at certificates, for
// they are rarely made for the address of a pod. Its connections end with alive. Those of net/http alone would outlive
// their request for as long as they are in the making, and nothing bounds that.
func newClient(alive context.Context) *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(alive, network, address)
			if err == nil {
				context.AfterFunc(alive, func() { conn.Close() })
			}
			return conn, err
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t, CheckRedirect: redirect.SameHost}
}

// httpGet asks once, and once more without TLS, and then without the header and the part of the URL that say who asks, if
// the server turns out not to speak it.
func (r *Runner) httpGet(ctx context.Context, c Call, action *corev1.HTTPGetAction) error {
	req, err := newRequest(ctx, c, action)
	if err != nil {
		return err
	}
	// Not cut off with ctx, so that the error is that of ctx and not of a connection that is closed.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	client := newClient(alive)
	err = send(client, req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme, plain.URL.User = "http", nil
	plain.Header.Del("Authorization")
	if send(client, plain) != nil {
		return err // of the request that was asked for
	}
	if r.opts.Hooks.HTTPFallback != nil {
		r.opts.Hooks.HTTPFallback(c, fmt.Sprintf(
			"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host))
	}
	return nil
}

// send sends a request and waits for the end of the answer, which may be when the container has done its work. An answer
// of any status is a success, and so is one that breaks off.
func send(client *http.Client, req *http.Request) error {
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	// After a switch of protocols there is no body but a connection, and no deadline ends reading that.
	if res.StatusCode == http.StatusSwitchingProtocols || res.ContentLength > maxBody {
		return nil
	}
	if _, err := io.CopyN(io.Discard, res.Body, maxBody); err != nil && req.Context().Err() != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return nil
}
