// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// Limits for responses of the runtime.
const (
	maxHead    = 64 << 10 // bytes of status line and headers
	maxRefusal = 1 << 20  // bytes of a refusal that is forwarded to the client
)

// runtimeConn is the connection to the runtime in a proxied session, with the runtime's response to the upgrade request.
type runtimeConn struct {
	conn     *conn
	response *http.Response
	head     []byte // received bytes of the response headers
}

// endpoint is the parsed session URL of a runtime.
type endpoint struct {
	address string // host:port
	host    string // server name for TLS
	tls     bool
	url     *url.URL
}

// parseURL parses and checks a session URL of the runtime.
func parseURL(location string, anyHost bool) (endpoint, error) {
	u, err := url.Parse(location)
	if err != nil {
		return endpoint{}, fmt.Errorf("runtime returned an invalid URL: %w", err)
	}
	e := endpoint{url: u, host: u.Hostname()}
	port := "80"
	switch u.Scheme {
	case "http", "":
	case "https":
		e.tls, port = true, "443"
	default:
		return endpoint{}, fmt.Errorf("runtime returned URL %q: scheme must be http or https", location)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if !anyHost && !isLoopback(e.host) {
		return endpoint{}, fmt.Errorf("runtime returned URL %q: host must be a loopback address", location)
	}
	e.address = net.JoinHostPort(e.host, port)
	return e, nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}

// buildRequest returns the bytes of an HTTP upgrade request. It has only these headers, and so no credentials of the client.
func (e endpoint) buildRequest(method string, headers http.Header) []byte {
	target := e.url.EscapedPath()
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	if e.url.RawQuery != "" {
		target += "?" + e.url.RawQuery
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, e.url.Host)
	_ = headers.Write(&b) // it replaces line breaks, and a buffer never fails
	if method == http.MethodPost {
		b.WriteString("Content-Length: 0\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// forwardedHeaders returns the headers of a request that the runtime needs for the upgrade, such as the protocols. It omits
// credentials.
func forwardedHeaders(r *http.Request) http.Header {
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": r.Header["Upgrade"]}
	for _, name := range []string{
		upgrade.HeaderProtocol, "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "User-Agent",
	} {
		if v := r.Header[name]; len(v) > 0 {
			h[name] = v
		}
	}
	if p := upgrade.Subprotocols(r); len(p) > 0 {
		h[upgrade.HeaderWebSocket] = []string{strings.Join(p, ", ")}
	}
	return h
}

// dialRuntime connects to the session URL of the runtime, sends an upgrade request and reads the headers of the response.
func (s *session) dialRuntime(ctx context.Context, location, method string, headers http.Header) (*runtimeConn, error) {
	o := s.server.opts
	e, err := parseURL(location, o.AllowAnyHost)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.CreationTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", e.address)
	if err != nil {
		return nil, fmt.Errorf("error dialing backend: %w", err)
	}
	if e.tls {
		raw = tls.Client(raw, tlsConfig(o.TLS, e.host))
	}
	c := s.newConn(raw, false, nil)
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if _, err := c.Write(e.buildRequest(method, headers)); err != nil {
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	response, head, err := readHead(c)
	if err != nil {
		return nil, err
	}
	if !stop() {
		return nil, fmt.Errorf("error reading the response of the runtime: %w", context.Cause(ctx))
	}
	return &runtimeConn{conn: c, response: response, head: head}, nil
}

func tlsConfig(c *tls.Config, host string) *tls.Config {
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c = c.Clone()
	if c.ServerName == "" {
		c.ServerName = host
	}
	c.NextProtos = nil // an upgrade requires HTTP/1.1
	return c
}

// readHead reads an HTTP response without its body, and returns it and the bytes of its headers.
func readHead(conn *conn) (response *http.Response, head []byte, err error) {
	var seen bytes.Buffer
	br := bufio.NewReader(io.TeeReader(io.LimitReader(conn, maxHead), &seen))
	response, err = http.ReadResponse(br, nil)
	if errors.Is(err, io.ErrUnexpectedEOF) && seen.Len() >= maxHead {
		err = fmt.Errorf("headers have more than %d bytes", maxHead)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("error reading the response of the runtime: %w", err)
	}
	all := seen.Bytes()
	rest := all[len(all)-br.Buffered():]
	// bytes of the body that were received too
	conn.early = append(append([]byte(nil), rest...), conn.early...)
	return response, all[:len(all)-len(rest)], nil
}

// readRefusal returns the response of a runtime that has refused the upgrade, in the form for the client, or nil.
func (b *runtimeConn) readRefusal() *upgrade.Refusal {
	code := b.response.StatusCode
	switch {
	case code == http.StatusSwitchingProtocols:
		return nil
	case code < 400:
		return &upgrade.Refusal{
			Code: http.StatusInternalServerError, Text: fmt.Sprintf("invalid upgrade response: status code %d", code),
		}
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(runnerTimeout))
	// The body was partly read by a reader that is lost: parse the response again from the stored headers.
	response, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(b.head), b.conn)), nil)
	if err != nil {
		return &upgrade.Refusal{Code: http.StatusInternalServerError, Text: err.Error()}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // as much as is available
	r := &upgrade.Refusal{Code: code, Text: string(body), Header: http.Header{}, FromRuntime: true}
	for name, values := range response.Header {
		if !isHopByHop(name) {
			r.Header[name] = values
		}
	}
	return r
}

// isHopByHop reports whether the named header applies only to one connection, so that a proxy must not forward it.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length":
		return true
	}
	return false
}
