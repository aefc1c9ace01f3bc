// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Upgraded is a connection on which an upgrade was requested.
type Upgraded struct {
	net.Conn

	Response *http.Response
	Reader   *bufio.Reader // reads the bytes after the response headers
}

// Upgrade sends an upgrade request with these headers and returns the connection with the response, even if the server has
// refused the upgrade. It does not verify the certificate of an https server.
func Upgrade(ctx context.Context, method, address string, headers http.Header) (*Upgraded, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	c, err := dialURL(ctx, u)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, u.RequestURI(), u.Host)
	if method == http.MethodPost {
		head += "Content-Length: 0\r\n"
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(c, head); err != nil {
		return nil, closeWithError(c, err)
	}
	if err := headers.Write(c); err != nil {
		return nil, closeWithError(c, err)
	}
	if _, err := io.WriteString(c, "\r\n"); err != nil {
		return nil, closeWithError(c, err)
	}
	r := bufio.NewReader(c)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, closeWithError(c, err)
	}
	_ = c.SetDeadline(time.Time{})
	return &Upgraded{Conn: c, Response: response, Reader: r}, nil
}

func dialURL(ctx context.Context, target *url.URL) (net.Conn, error) {
	if target.Scheme == "https" {
		return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", target.Host)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", target.Host)
}

func closeWithError(conn net.Conn, err error) error {
	_ = conn.Close()
	return err
}

// Refused is the error of a client whose server refused the upgrade.
type Refused struct {
	Code   int
	Body   string
	Header http.Header
}

// Error returns a text with the status code and the body.
func (e *Refused) Error() string { return fmt.Sprintf("refused with %d: %s", e.Code, e.Body) }

// checkSwitched returns a [*Refused] error unless the status of the response is 101 Switching Protocols.
func (u *Upgraded) checkSwitched() error {
	if u.Response.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	_ = u.SetDeadline(time.Now().Add(time.Minute))
	defer u.Close()
	body, err := io.ReadAll(u.Response.Body)
	if err != nil {
		return err
	}
	return &Refused{Code: u.Response.StatusCode, Body: string(body), Header: u.Response.Header}
}
