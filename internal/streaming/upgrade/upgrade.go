// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade negotiates the protocol of a request to package cri/streaming that asks for an upgrade, or returns the reason for a
// refusal. It is pure.
package upgrade

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Headers of upgrades.
const (
	HeaderProtocol  = "X-Stream-Protocol-Version"
	HeaderAccepted  = "X-Accepted-Stream-Protocol-Versions"
	HeaderWebSocket = "Sec-Websocket-Protocol"
)

// Protocols, by their names on the wire.
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

// IsUpgrade reports whether a request asks for another protocol, in the kubelet's generous reading.
func IsUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Connection"], func(v string) bool {
		return strings.Contains(strings.ToLower(v), "upgrade")
	})
}

// IsWebSocket reports whether a request asks for a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && IsUpgrade(r)
}

func isSPDY(r *http.Request) bool {
	return strings.Contains(strings.ToUpper(r.Header.Get("Upgrade")), SPDY31) && IsUpgrade(r)
}

// IsClosable reports whether a request is a WebSocket whose protocol has a signal that closes a stream.
func IsClosable(r *http.Request) bool {
	return IsWebSocket(r) && slices.Contains(Subprotocols(r), ChannelV5)
}

// IsTunnel reports whether a request is a WebSocket that carries SPDY.
func IsTunnel(r *http.Request) bool {
	return IsWebSocket(r) && len(TunnelledProtocols(r)) > 0
}

// Tunnelled returns the SPDY protocols that a WebSocket may carry.
func TunnelledProtocols(r *http.Request) (protocols []string) {
	for _, p := range Subprotocols(r) {
		if inner, ok := strings.CutPrefix(p, SPDY31+"+"); ok && strings.HasSuffix(inner, ".k8s.io") {
			protocols = append(protocols, inner)
		}
	}
	return protocols
}

// Subprotocols returns the WebSocket protocols that a request offers. A bearer token that is among them is left out.
func Subprotocols(r *http.Request) []string {
	return slices.DeleteFunc(splitList(r.Header[HeaderWebSocket]), func(p string) bool { return strings.HasPrefix(p, bearer) })
}

// list returns the parts of a header whose values are lists.
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

// Refusal is an answer to a request that is not upgraded.
type Refusal struct {
	Code        int
	Text        string
	Header      http.Header // beside those of a text
	FromRuntime bool        // it is the runtime's: its headers are those of Header alone
}

// Error returns the text.
func (e *Refusal) Error() string { return e.Text }

// Check refuses a request that no upgrade can come of. A body would be read as the first frames by one side and as
// the body by another.
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

// NegotiateSPDY chooses the protocol of a SPDY connection: the first of the client's that the server has.
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

// NegotiateWebSocket chooses the protocol of a WebSocket, "" if the client offers none, and checks the handshake.
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
