// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade negotiates the protocol of an HTTP upgrade request for a streaming session (SPDY or WebSocket), or returns the
// refusal for it. Its functions are pure.
package upgrade

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Headers of upgrade requests and responses.
const (
	HeaderProtocol  = "X-Stream-Protocol-Version"
	HeaderAccepted  = "X-Accepted-Stream-Protocol-Versions"
	HeaderWebSocket = "Sec-Websocket-Protocol"
)

// Names of protocols in these headers.
const (
	SPDY31      = "SPDY/3.1"
	ChannelV1   = "channel.k8s.io"
	ChannelV2   = "v2.channel.k8s.io"
	ChannelV3   = "v3.channel.k8s.io"
	ChannelV4   = "v4.channel.k8s.io"
	ChannelV5   = "v5.channel.k8s.io"
	Base64V1    = "base64.channel.k8s.io"
	Base64V4    = "v4.base64.channel.k8s.io"
	PortForward = "portforward.k8s.io"
	bearer      = "base64url.bearer.authorization.k8s.io."
)

// IsUpgrade reports whether r requests an upgrade. As in the kubelet, it suffices that a Connection header contains
// "upgrade", in upper or lower case.
func IsUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Connection"], func(v string) bool {
		return strings.Contains(strings.ToLower(v), "upgrade")
	})
}

// IsWebSocket reports whether r requests an upgrade to a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && IsUpgrade(r)
}

func isSPDY(r *http.Request) bool {
	return strings.Contains(strings.ToUpper(r.Header.Get("Upgrade")), SPDY31) && IsUpgrade(r)
}

// IsClosable reports whether r requests a WebSocket with version 5 of the protocol. In this version the client can close a
// single stream, such as standard input.
func IsClosable(r *http.Request) bool {
	return IsWebSocket(r) && slices.Contains(Subprotocols(r), ChannelV5)
}

// IsTunnel reports whether r requests a WebSocket with a SPDY connection inside.
func IsTunnel(r *http.Request) bool {
	return IsWebSocket(r) && len(TunnelledProtocols(r)) > 0
}

// TunnelledProtocols returns the SPDY protocols offered in r for a SPDY connection inside a WebSocket.
func TunnelledProtocols(r *http.Request) (protocols []string) {
	for _, p := range Subprotocols(r) {
		if inner, ok := strings.CutPrefix(p, SPDY31+"+"); ok && strings.HasSuffix(inner, ".k8s.io") {
			protocols = append(protocols, inner)
		}
	}
	return protocols
}

// Subprotocols returns the WebSocket protocols offered in r. It omits a bearer token, which clients send in the same header.
func Subprotocols(r *http.Request) []string {
	return slices.DeleteFunc(splitList(r.Header[HeaderWebSocket]), func(p string) bool { return strings.HasPrefix(p, bearer) })
}

// splitList returns the elements of a header. Each value of the header is a comma-separated list.
func splitList(values []string) (parts []string) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// Refusal is the HTTP response to an upgrade request that is refused. It implements error.
type Refusal struct {
	Code        int
	Text        string
	Header      http.Header // additional headers
	FromRuntime bool        // response of the runtime: only the headers in Header are sent
}

// Error returns the text of the response.
func (e *Refusal) Error() string { return e.Text }

// Check returns a refusal if r cannot be upgraded, and nil otherwise. It refuses a request with a body, because a proxy and
// the runtime could disagree on the end of the body.
func Check(r *http.Request) *Refusal {
	switch {
	case !IsUpgrade(r):
		return &Refusal{Code: http.StatusInternalServerError, Text: "Upgrade request required\n"}
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return &Refusal{Code: http.StatusBadRequest, Text: "unable to upgrade: a request with a body cannot be upgraded"}
	case len(r.Header["Upgrade"]) > 1:
		return &Refusal{Code: http.StatusBadRequest, Text: "unable to upgrade: more than one Upgrade header"}
	}
	return nil
}

// NegotiateSPDY returns the first SPDY protocol offered in r that the server supports. If there is none, it returns a
// refusal.
func NegotiateSPDY(r *http.Request, server []string) (string, *Refusal) {
	values, ok := r.Header[HeaderProtocol]
	client := splitList(values)
	switch {
	case !ok:
		return "", &Refusal{Code: http.StatusBadRequest, Text: fmt.Sprintf(
			"unable to upgrade: header %s does not exist in request with %d headers", HeaderProtocol, len(r.Header))}
	case len(client) == 0:
		return "", &Refusal{Code: http.StatusBadRequest, Text: fmt.Sprintf(
			"unable to upgrade: header %s contains %s, but no valid protocols", HeaderProtocol, values)}
	}
	for _, p := range client {
		if slices.Contains(server, p) {
			if !isSPDY(r) {
				return "", &Refusal{Code: http.StatusBadRequest, Text: "unable to upgrade: missing upgrade headers in request"}
			}
			return p, nil
		}
	}
	return "", &Refusal{
		Code: http.StatusForbidden, Header: http.Header{HeaderAccepted: server},
		Text: fmt.Sprintf("unable to upgrade: unable to negotiate protocol: client supports %v, server accepts %v", client, server),
	}
}

// NegotiateWebSocket checks the WebSocket handshake in r, and returns the first protocol offered in r that is in server, or
// a refusal. A "" in server permits requests that offer no protocol; the result is then "".
func NegotiateWebSocket(r *http.Request, server []string) (string, *Refusal) {
	switch {
	case r.Method != http.MethodGet:
		return "", &Refusal{Code: http.StatusMethodNotAllowed, Text: "bad method"}
	case r.Header.Get("Sec-Websocket-Key") == "":
		return "", &Refusal{Code: http.StatusBadRequest, Text: "mismatch challenge/response"}
	case r.Header.Get("Sec-Websocket-Version") != "13":
		return "", &Refusal{
			Code: http.StatusBadRequest, Text: "missing or bad WebSocket Version",
			Header: http.Header{"Sec-Websocket-Version": {"13"}},
		}
	}
	client := Subprotocols(r)
	if len(client) == 0 && slices.Contains(server, "") {
		return "", nil
	}
	for _, p := range client {
		if slices.Contains(server, p) {
			return p, nil
		}
	}
	return "", &Refusal{Code: http.StatusForbidden}
}
