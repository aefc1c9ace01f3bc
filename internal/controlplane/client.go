// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Limits of a request.
const (
	callTimeout = 30 * time.Second
	maxAnswer   = 64 << 20
)

// Client sends requests to an API server as JSON. Get one from [Access].
type Client struct {
	url, token string
	http       *http.Client
}

// StatusError is an error response of the API server.
type StatusError struct {
	Code    int    // such as http.StatusConflict
	Reason  string // such as AlreadyExists; empty: the response was no Status object
	Message string
}

// Error returns code, reason and message of the response.
func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Code, e.Reason, e.Message))
}

// StatusCode returns the HTTP status code if err wraps a [*StatusError], and zero otherwise.
func StatusCode(err error) int {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Code
	}
	return 0
}

func newClient(url string, config *tls.Config, token string) *Client {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	return &Client{url: url, token: token, http: &http.Client{Transport: transport, Timeout: callTimeout}}
}

// Do sends one request. A body of type []byte is sent unchanged, any other as JSON, nil without a body; a PATCH is a JSON
// merge patch. The response is decoded from JSON into out, copied unchanged if out is a *[]byte, and ignored if out is nil.
// For an error code of the server, the error wraps a [*StatusError].
func (c *Client) Do(ctx context.Context, method, path string, body, out any) error {
	payload, err := encodeBody(body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json, */*")
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err // the error names method and address
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if err == nil {
		err = decodeAnswer(resp.StatusCode, answer, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func encodeBody(in any) ([]byte, error) {
	switch in := in.(type) {
	case nil:
		return nil, nil
	case []byte:
		return in, nil
	default:
		return json.Marshal(in)
	}
}

// decodeAnswer decodes answer, the body of a response, into out; see [Client.Do]. If the HTTP status code is not 2xx, it
// returns a [*StatusError].
func decodeAnswer(code int, answer []byte, out any) error {
	if code < 200 || code > 299 {
		status := &StatusError{Code: code}
		if json.Unmarshal(answer, status) != nil || status.Message == "" {
			status.Message = string(answer[:min(len(answer), 1<<10)])
		}
		status.Code = code
		return status
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = answer
		return nil
	default:
		return json.Unmarshal(answer, out)
	}
}

// CheckReady returns nil if the API server is ready. Otherwise it returns an error with the response of its /readyz
// endpoint.
func (c *Client) CheckReady(ctx context.Context) error {
	return c.Do(ctx, http.MethodGet, "/readyz?verbose", nil, nil)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
